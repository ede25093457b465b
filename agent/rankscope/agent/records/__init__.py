"""What the agent writes down: events, cycles and counters of the job folder, and what follows from them."""
