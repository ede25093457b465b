"""``make recordings``: run the jobs that the notebooks are shown on, and store their records.

Takes about ten minutes: a job after the other, as stragglers are told by time. Names on the command line
choose some of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.recordings.plan import BY_NAME
from tests.recordings.run import run_recording
from tests.recordings.store import store


def main(names: Sequence[str]) -> int:
    """Record jobs; 0 when all ended as they should, 2 for a name that is none."""
    unknown = sorted(set(names) - set(BY_NAME))
    if unknown:
        print(f"no such job: {', '.join(unknown)}; there are {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or BY_NAME:
        with tempfile.TemporaryDirectory(prefix="rankscope-recording-") as scratch:
            folder = Path(scratch) / name
            try:
                print(store(run_recording(BY_NAME[name], folder), folder), flush=True)
            except (RuntimeError, ValueError) as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
