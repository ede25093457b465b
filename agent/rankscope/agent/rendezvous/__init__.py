"""Torch's rendezvous, with a fresh store for each round, and how one node leaves it."""
