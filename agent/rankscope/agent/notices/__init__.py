"""Notices: events that go to a webhook or to a command while the job trains.

``delivery`` is the agent's side. Everything that can hang (names, sockets, TLS, a command) happens in a small
process of its own (``desk``), which imports the standard library only; nothing is imported here for its sake.
"""
