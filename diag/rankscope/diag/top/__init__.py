"""A job as it runs, rank by rank, without touching it: ``diag top``.

``sampling`` reads pages, ``/proc`` and events; ``rates`` and ``standing`` (pure) make rows of it; ``view``,
``keys`` and ``screen`` (pure) are what a person sees and does; ``terminal`` and ``loop`` are the shell.
"""
