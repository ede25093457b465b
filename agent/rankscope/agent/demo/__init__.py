"""The demonstration: a real training run in which one rank gets stuck."""
