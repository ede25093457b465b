"""Independent workers (``--job-execution-mode Async``): a failed one is started again alone, with its rank.

``lives`` is the pure part; ``worker`` and ``contexts`` are torch's process contexts, one a worker; ``failed``
finds out and decides about a failed one; ``agent`` puts them under torch's run loop.
"""
