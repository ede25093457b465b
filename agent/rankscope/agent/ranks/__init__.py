"""Which rank a worker has: by layout, agreed on by the agents, or given by a launcher that is a worker."""
