"""The agent's end of a local socket, and the client of it: what needs the agent itself, and no stored record.

Analyse now, change settings while the job runs, records that could not be written.
"""
