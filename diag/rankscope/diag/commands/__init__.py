"""One module a verb of ``diag``, each with ``SUMMARY``, ``prepare_parser`` and ``main``."""
