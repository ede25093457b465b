"""Watching beside a job that somebody else launched: what ``diag watch`` adds to the agent's rooms."""
