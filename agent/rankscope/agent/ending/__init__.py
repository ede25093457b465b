"""How workers end: evidence first, once and within its budget, and what is said of it."""
