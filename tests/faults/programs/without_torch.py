"""A worker without torch: it sleeps, computes and prints, by turns, and ends."""

from __future__ import annotations

import argparse
import time


def compute(seconds: float) -> int:
    """Work in Python for so long."""
    until = time.monotonic() + seconds
    done = 0
    while time.monotonic() < until:
        done += sum(range(1000))
    return done


def main() -> None:
    """Take turns until the time is up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sleep", type=float, default=10.0)
    parser.add_argument("--compute", type=float, default=3.0)
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        time.sleep(options.sleep)
        compute(options.compute)
        print("another turn", flush=True)


if __name__ == "__main__":
    main()
