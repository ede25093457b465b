"""What pages have from the code is what the code says now; the pictures are those of the real transitions."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Final, get_args

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from tests.detector_factory import TICK, Job, one_step, wait_for, working
from tests.pages.diagrams import detector_moves, stage_moves
from tests.pages.makers import DOCS, PARTS, PICTURES
from tests.pages.parts import part_names, with_parts
from tests.pages.svg import Move, lanes

from rankscope.diag.store.launches import STAGES
from rankscope.watchdog.detector import State
from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import CycleStarted, Event, Instruction, SettingsChanged

ROOT: Final = DOCS.parent
PAGES: Final = [page for page in sorted(DOCS.rglob("*.md")) if part_names(page.read_text())]
FRAMEWORKS: Final = ("accelerate", "lightning", "deepspeed", "ray-train")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_part_that_is_made_from_the_code_is_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert with_parts(text, PARTS) == text, "make docs"


def test_every_part_stands_on_a_page_and_is_not_empty() -> None:
    asked = Counter(name for page in PAGES for name in part_names(page.read_text()))
    assert set(asked) == set(PARTS)
    assert all(len(make()) > 50 for make in PARTS.values())


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_up_to_date_and_shown(name: str) -> None:
    assert (DOCS / name).read_text() == PICTURES[name](), "make docs"
    page = next(
        page for page in (DOCS / name).parent.glob("*.md") if f"]({Path(name).name})" in page.read_text()
    )
    assert page.exists()


def test_a_part_that_is_stale_is_seen() -> None:
    page = "a\n<!-- made from the code: x -->\nold\n<!-- end: x -->\nb\n"
    assert with_parts(page, {"x": lambda: "new"}) == page.replace("old", "new")
    with pytest.raises(KeyError):
        with_parts(page, {})


class Recorded:
    """A detector that is driven at random, and the changes of state that were seen."""

    def __init__(self, seed: int) -> None:
        self.moves: set[tuple[str, str]] = set()
        self.draw = random.Random(seed)
        self.job = Job(HangSettings(act_after=self.draw.choice([None, 20.0])), confidence="high")
        self.handle = self.job.detector.handle
        self.job.detector.handle = self._handle  # type: ignore[method-assign]  # seen from outside

    def _handle(self, event: Event) -> tuple[Instruction, ...]:
        before = self.job.detector.state
        said = self.handle(event)
        if not isinstance(event, CycleStarted):  # that one leads from any state
            self.moves.add((before, self.job.detector.state))
        return said

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.job.healthy = self.draw.random() < 0.2
            self.job.hang = self.draw.random() < 0.7
            self.job.loops = frozenset({2}) if self.draw.random() < 0.5 else frozenset()
            act = self.draw.choice(
                [
                    self.train,
                    self.hang,
                    self.recover,
                    self.idle,
                    self.work,
                    self.loop,
                    self.timer,
                    self.restart,
                    self.change_settings,
                ]
            )
            act()

    def train(self) -> None:
        self.job.run(self.draw.uniform(1, 15), one_step)

    def hang(self) -> None:
        wait_for(self.job, culprit=2)
        self.job.run(self.draw.uniform(1, 40))

    def recover(self) -> None:
        """A rank that goes on as soon as it is suspected."""
        wait_for(self.job, culprit=2)
        for _ in range(100):
            self.job.run(TICK)
            if self.job.detector.state == "suspected":
                break
        self.train()

    def idle(self) -> None:
        """Nobody waits for anybody, and nobody works."""
        self.job.run(self.draw.uniform(1, 40))

    def work(self) -> None:
        self.job.run(self.draw.uniform(1, 60), working(2))

    def loop(self) -> None:
        wait_for(self.job, culprit=2)
        self.job.run(self.draw.uniform(5, 60), working(2))

    def timer(self) -> None:
        self.job.expire_timer(1)

    def change_settings(self) -> None:
        """Right after a hang that may have been acted on."""
        self.hang()
        self.job.detector.handle(SettingsChanged(self.job.detector.clocks.settings, anew=True))

    def restart(self) -> None:
        self.job.detector.handle(CycleStarted(self.job.now))


def test_the_table_of_the_detector_is_what_it_does() -> None:
    moves = detector_moves()
    assert {state for move in moves for state in (move.start, move.end) if state} == set(get_args(State))
    table = {(move.start, move.end) for move in moves if move.start}
    seen: set[tuple[str, str]] = set()
    for seed in range(12):
        recorded = Recorded(seed)
        recorded.run(25)
        seen |= recorded.moves
    quiet = {(state, state) for state in get_args(State)}  # nothing happens
    assert seen - table <= quiet, f"the docstring of watchdog.detector lacks {seen - table - quiet}"
    assert table <= seen, f"never seen: {table - seen}"


def test_the_stages_of_the_picture_are_those_of_the_clock() -> None:
    shown = {name for move in stage_moves() for name in (move.start, move.end)}
    assert shown == {
        stage.replace("hang_unnoticed", "unnoticed").replace("first_step", "first step") for stage in STAGES
    }


def test_a_picture_needs_no_network_and_no_script() -> None:
    picture = lanes(["a", "b"], [Move("a", "b", "<why>", "x & y"), Move("", "a", "any")], title="t")
    assert "&lt;why&gt;" in picture
    assert not re.search(r"<script|href|@import|url\((?!#)", picture)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_runs_in_a_test_or_its_page_says_first_that_it_does_not(framework: str) -> None:
    page = (DOCS / "how-to" / f"{framework}.md").read_text()
    program = (ROOT / "tests" / "integration" / "test_frameworks.py").read_text()
    tested = re.search(r'"framework", \[([^\]]*)\]', program)
    assert tested is not None
    is_tested = f'"{framework}"' in tested[1]
    assert page.startswith("**Untested**") != is_tested


def test_the_figures_of_the_fault_matrix_are_those_of_the_kept_table() -> None:
    table = (ROOT / "benchmarks" / "results" / "faults.md").read_text()
    found = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    ran = [float(row[6]) for row in found if row[2] == "run" and "Hang" in row[4]]
    middle, trials = f"{statistics.median(ran):.1f} s", len(found) - 2
    assert f"Median {middle} over {len(ran)} hangs" in (ROOT / "README.md").read_text()
    assert f"median {middle} over the {len(ran)} hangs" in (DOCS / "comparison.md").read_text()
    assert f"({trials} trials" in (DOCS / "limits.md").read_text()


def test_the_documentation_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    site = (tmp_path / "how-it-works" / "watchdog.html").read_text()
    assert "detector.svg" in site
    assert (tmp_path / "repository" / "SECURITY.html").exists(), (
        "what pages link to outside of docs comes along"
    )
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', page.read_text()), page
