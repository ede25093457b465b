"""Evidence of the ranks, taken and turned into a stored diagnosis."""
