"""What an agent answers on its control socket: it looks, tells and changes settings; it never acts."""
