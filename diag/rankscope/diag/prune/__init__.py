"""Old jobs are removed: which ones is decided by ``plan``, done by ``remove``, measured by ``sizes``."""
