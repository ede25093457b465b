"""One archive of a job for a ticket, redacted, and back again.

``files`` says what of a job's folder belongs in it, ``contents`` makes it ready, ``archive`` writes it,
``unpacked`` reads it again.
"""
