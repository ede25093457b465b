"""What the user wants: the table of settings, where values come from, and what they mean together."""
