"""Which jobs are stored, and how each stands: a row a job, quickly, however many there are.

What a job has been through in full is ``history``'s to say; here no more is read than a row needs.
"""
