"""``python -m rankscope.agent``: the same as ``diag run``."""

from __future__ import annotations

import sys

from rankscope.agent.commands.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
