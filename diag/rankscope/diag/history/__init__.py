"""What a job has been through, read from its records: cycles, restarts, faults, where the time went. Pure.

``read`` is the only module that looks at files.
"""
