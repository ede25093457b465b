"""A small agent: captures the output of the workers it is told of, looks after the drain, finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rankscope.agent.logs.process import CapturedStream, LogCapture, StreamName
from rankscope.agent.logs.stream import Limits

NAMES: tuple[StreamName, ...] = ("stdout", "stderr")


def main() -> None:
    folder, reports = Path(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(reports, False)
    told: dict[str, Any] = json.loads(sys.argv[3])

    def report(**message: object) -> None:
        os.write(reports, json.dumps(message).encode() + b"\n")

    capture = LogCapture(folder / "fifos", lambda text: report(event=text), limits=Limits(**told["limits"]))
    assert capture.start()
    fifos = capture.open(
        [
            CapturedStream(rank, name, folder / f"{rank}-{name}.log")
            for rank in range(len(told["workers"]))
            for name in NAMES
        ]
    )
    workers: list[subprocess.Popen[bytes]] = []
    for rank, source in enumerate(told["workers"]):
        with fifos[rank, "stdout"].open("w") as out, fifos[rank, "stderr"].open("w") as err:
            workers.append(subprocess.Popen([sys.executable, "-c", source], stdout=out, stderr=err))
    report(pids=[worker.pid for worker in workers] + [capture.drain_pid])
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            capture.check()

    watcher = threading.Thread(target=watch)
    watcher.start()
    codes = [worker.wait() for worker in workers]
    ended.set()
    watcher.join()
    report(codes=codes)
    sizes = {f"{rank}-{name}": size for (rank, name), size in capture.sizes().items()}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report(finishing=True)
    try:
        finished = capture.finish(told["finish"])
    except KeyboardInterrupt:
        report(interrupted=_left(folder))
        return
    report(
        finished={
            "unshown": finished.unshown_bytes,
            "unfiled": finished.unfiled_bytes,
            "process_ended": finished.process_ended,
            "sizes": sizes,
            "left": _left(folder),
        }
    )


def _left(folder: Path) -> list[str] | None:
    return sorted(map(str, (folder / "fifos").iterdir())) if (folder / "fifos").exists() else None


main()
