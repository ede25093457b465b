"""Workers' output: into one file a rank and stream, and untouched onto the agent's own stdout and stderr.

A worker writes into a FIFO; a small process of its own (``drain``) reads it, so that nothing the agent,
the disk or the terminal does can block or kill a worker. Only ``specs`` imports torch.
"""
