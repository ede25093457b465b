"""From what a user names to diagnoses: for ``diag analyze``, ``diag report`` and ``rankscope.diag.analyze``.

It looks, reads and judges; how that is shown, and which command asked, is not known here.
"""
