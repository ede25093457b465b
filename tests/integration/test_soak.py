"""A minute of ``make soak``: a real agent, eight ranks, captures, requests, messages, notices, all right.

The ranks are without torch: the agent is the same, and the start costs a tenth of the CPU. An hour with torch
in them, which also tells smaller leaks and how fast they train, is the command's own business.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.deadline import DEADLINE
from tests.soak.__main__ import main
from tests.soak.line import Line
from tests.soak.samples import Observed

from rankscope.diag import proc

ROOT: Final = Path(__file__).parents[2]
SHORT: Final = (
    *("--seconds=36", "--kind=plain", "--workers=8", "--control=2"),
    *("--step-time=0.02", "--capture-every=8"),
)


@pytest.mark.timeout(3 * DEADLINE)
def test_nothing_grows_and_nothing_is_lost_in_a_minute_of_everything_at_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *SHORT, "--json", f"--keep={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    lines = msgspec.json.decode(done.stdout, type=list[Line])
    assert all(line.ok for line in lines)
    seen = msgspec.json.decode((tmp_path / "seen.json").read_bytes(), type=Observed)
    assert len(seen.last_counts) == 8
    assert {"agent", "health server", "log drain", "notices"} <= seen.samples[-1].ours.keys()
    assert seen.requests.sent > 2_000
    assert not [pid for pid in proc.process_table() if str(tmp_path) in proc.command_line(pid)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds=5", "--kind=plain"), "5 s allow no trend, 20 do"),
        (("--workers=3", "--control=2"), "a collective among fewer ranks is another step"),
        (("--workers=0",), "argument --workers"),
    ],
)
def test_a_soak_that_could_not_be_judged_is_a_usage_error(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
