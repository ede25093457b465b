"""The agent acts: torch's elastic agent, extended to take evidence, decide and keep the record."""
