"""What is on the HTML report: the document that it is drawn from, and the file that is made of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from tests.classify_factory import a_rank, judge_still, user
from tests.report_factory import HOSTILE, MADE, Shape, a_big_job, a_history, hang, hostile

from rankscope.diag.model import (
    Decision,
    Diagnosis,
    JobSnapshot,
    Progress,
    RankFinding,
    RankSnapshot,
    StackGroup,
)
from rankscope.diag.report.html import Page, page_data, render_page
from rankscope.diag.report.html.document import RankSet
from rankscope.diag.report.html.render import SCRIPTS, asset, embedded, policy
from rankscope.diag.report.html.shown import LONGEST_SET, LONGEST_TEXT
from rankscope.diag.report.html.stack_parts import MOST_BRANCHES, MOST_FRAMES, MOST_STACKS
from rankscope.diag.report.text import inert
from rankscope.diag.store.job import JobFolder

BARE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]")
FORBIDDEN: Final = (
    *("innerHTML", "outerHTML", "insertAdjacent", "document.write", "DOMParser", "createContextualFragment"),
    *("eval(", "Function(", "import(", 'setAttribute("on', "setTimeout"),
    *("fetch(", "XMLHttp", "WebSocket", "sendBeacon", "http:", "https:"),
)
FIVE_MB: Final = 5_000_000


class _Elements(HTMLParser):
    """The elements of a file as a browser's parser would see them, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._raw = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text.append(" ")
        self._raw = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._raw = "" if tag == self._raw else self._raw

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self.text.append(data)

    @property
    def shown(self) -> str:
        return " ".join("".join(self.text).split())


def page(diagnosis: Diagnosis | None = None) -> Page:
    return page_data(diagnosis or hang(), made=MADE)


def ranks_of(one: Page, index: int) -> str:
    return one.sets[index].ranks


def test_the_verdict_comes_first_with_culprit_line_confidence_and_what_was_decided(tmp_path: Path) -> None:
    history = a_history(JobFolder(tmp_path / "run-7"))
    decision = Decision("restart", "no progress for 180 s", MADE, "i-1")
    made = page_data(replace(hang(), incident="i-1"), made=MADE, decision=decision, history=history)
    shown = _Elements(render_page(made)).shown
    first_screen = shown[: shown.index("Who waits for whom")]
    for said in (
        "RankNonCommHang · data_loading",
        "rank 2 is stuck in load_batch (train.py:8)",
        "/workspace/train.py:8 in load_batch time.sleep(1e6)",
        "Culprit ◆ rank 2 on host-a",
        "Confidence medium",
        "Severity warning",
        "Seen 4 of 5 ranks",
        "Decided: restart no progress for 180 s",
        "the job has ended since: succeeded",
    ):
        assert said in first_screen


def test_all_that_the_text_report_says_is_on_the_page() -> None:
    shown = _Elements(render_page(page())).shown
    found = hang()
    for one in found.evidence:
        assert " ".join(one.fact.split()) in shown
    for group in found.stacks:
        for frame in group.stack:
            assert frame in shown
    assert "rank 4 not observed: no snapshot of this rank" in shown
    assert "ranks 0-1,3 ○ victim all_reduce rank 2" in shown
    assert found.rule in shown


def test_stacks_are_the_culprits_first_then_the_rarest() -> None:
    ranks = [a_rank(rank).waiting_in(line=11 if rank else 12) for rank in range(4)]
    made = page(judge_still(*ranks, a_rank(4).stuck_in(user("load", 8)), a_rank(5).stuck_in(user("load", 8))))
    assert [(one.count, one.is_culprit) for one in made.stacks.groups] == [(2, True), (1, False), (3, False)]


def test_each_frame_of_the_tree_says_who_has_it_and_who_lacks_it_and_nobody_unseen() -> None:
    made = page()
    found = {
        made.frames[one.frame]: (ranks_of(made, one.have), ranks_of(made, one.lack), one.is_culprit)
        for one in made.tree
        if one.frame >= 0
    }
    assert found["<module> (train.py:90)"] == ("0-3", "", True)
    assert found["load_batch (train.py:8)"] == ("2", "0-1,3", True)
    assert found["all_reduce (torch/distributed/distributed_c10d.py:3252)"] == ("0-1,3", "2", False)
    assert made.tree[0].parent == -1
    assert all(one.parent < index for index, one in enumerate(made.tree))


def test_the_wait_for_graph_folds_equal_ranks_and_keeps_chains_apart() -> None:
    def finding(rank: int, waits: tuple[int, ...]) -> RankFinding:
        if not waits:
            return RankFinding(rank, "n", 1, "hung", "culprit", position="p")
        return RankFinding(rank, "n", 1, "waiting", "victim", waits_for=waits, position="p")

    chain = [finding(0, (1,)), finding(1, (4,)), finding(2, (1,)), finding(4, ()), finding(5, (4,))]
    made = page(replace(hang(), ranks=tuple(chain)))
    graph = {
        ranks_of(made, one.ranks): {ranks_of(made, made.waits[to].ranks) for to in one.waits_for}
        for one in made.waits
    }
    assert graph == {"4": set(), "0,2": {"1"}, "1": {"4"}, "5": {"4"}}


def test_nobody_waiting_is_no_graph() -> None:
    alone = replace(hang(), ranks=(RankFinding(0, "n", 1, "running", "bystander"),))
    assert page(alone).waits == ()
    assert 'id="waits"' not in render_page(page(alone))


def test_steps_and_the_time_since_come_from_the_look() -> None:
    progress = [
        Progress(step=7, seconds_since_step=3.25),
        Progress(user_step=900, seconds_since_step=61.0),
        None,
    ]
    look = JobSnapshot(
        "j", 0.0, 3, tuple(RankSnapshot(rank, progress=one) for rank, one in enumerate(progress))
    )
    made = page_data(hang(), made=MADE, look=look)
    assert made.ranks.step[:3] == (7, 900, None)
    assert made.ranks.idle[:3] == (3.2, 61.0, None)
    assert made.head.stopped_for == 3.2


def test_the_timeline_has_cycles_decisions_and_the_restart_behind_its_decision(tmp_path: Path) -> None:
    made = page_data(hang(), made=MADE, history=a_history(JobFolder(tmp_path / "run-7")))
    assert made.timeline is not None
    kinds = [one.kind for one in made.timeline.moments if one.kind in ("decision", "restart", "end")]
    assert kinds == ["decision", "restart", "end"]
    assert made.timeline.state == "succeeded"
    assert made.timeline.restarts == 1
    assert len(made.timeline.cycles) == 2
    assert all(one.began > 0 for one in made.timeline.cycles)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_nothing_of_the_job_is_interpreted(text: str) -> None:
    html = render_page(page(hostile(text)))
    harmless = _Elements(render_page(page()))
    found = _Elements(html)
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in harmless.tags}
    kinds = [attributes.get("type") for tag, attributes in found.tags if tag == "script"]
    assert kinds == ["application/json", None]
    assert len([tag for tag, _ in found.tags if tag == "style"]) == 1
    allowed = {name for _, attributes in harmless.tags for name in attributes}
    assert {name for _, attributes in found.tags for name in attributes} <= allowed
    assert not any(name.startswith("on") or name in ("src", "style") for name in allowed)
    assert not BARE.search(html)
    assert inert(text)[:LONGEST_TEXT].split("\\n")[0].split()[0] in found.shown


def test_the_data_in_the_page_is_the_document_and_ends_no_element() -> None:
    for text in HOSTILE:
        made = page(hostile(text))
        data = embedded(made)
        assert not re.search("[<>&\u2028\u2029]", data)
        assert msgspec.json.decode(data.encode(), type=Page) == made
        assert json.loads(data)["head"]["job"] == made.head.job


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else() -> None:
    html = render_page(page())
    style, script = asset("style.css"), "".join(asset(name) for name in SCRIPTS)
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert found is not None
    assert found[1].replace("&#39;", "'").replace("&#43;", "+") == policy(style=style, script=script)
    assert found[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert f"<style>{style}</style>" in html
    assert f"<script>{script}</script>" in html
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_the_scripts_write_text_and_never_markup_and_load_nothing() -> None:
    for name in SCRIPTS:
        text = asset(name).replace("http://www.w3.org/2000/svg", "")
        assert [word for word in FORBIDDEN if word in text] == []
    assert not re.search(r"url\(|@import|https?:", asset("style.css"))


@pytest.mark.parametrize("shape", ["alike", "all_different", "every_third", "pipeline"])
def test_a_page_of_many_ranks_stays_small_and_shows_the_culprit(shape: Shape) -> None:
    size = 16_384 if shape == "all_different" else 2_048
    diagnosis, look = a_big_job(size, shape)
    made = page_data(diagnosis, made=MADE, look=look)
    html = render_page(made)
    assert len(html.encode()) < FIVE_MB * size // 16_384
    assert made.stacks.groups[0].is_culprit
    assert made.rows[0].role == "culprit"
    assert "load_batch (train.py:8)" in [made.frames[one.frame] for one in made.tree if one.is_culprit]
    assert len(made.ranks.rank) == size
    assert len(made.waits) <= 4
    assert len(made.rows) <= 300
    counted = sum(one.count for one in made.stacks.groups) + made.stacks.threads_left_out
    assert counted == size


def test_what_is_left_out_is_counted_and_what_a_culprit_shows_never_is() -> None:
    groups = [
        StackGroup(1, (f"{rank}:1",), str(rank), (f"leaf_{rank} (x.py:1)", "main (x.py:9)"))
        for rank in range(1000)
    ]
    made = page(replace(hang(), stacks=tuple(groups), culprits=(999,), ranks=()))
    assert len(made.stacks.groups) == MOST_STACKS
    assert made.stacks.left_out == made.stacks.threads_left_out == 1000 - MOST_STACKS
    assert made.frames[made.stacks.groups[0].frames[0]] == "leaf_999 (x.py:1)"
    branches = [one for one in made.tree if one.parent == 1]
    assert len(branches) == MOST_BRANCHES + 1
    assert sum(one.folded for one in branches) == 1000 - MOST_BRANCHES
    assert any(made.frames[one.frame] == "leaf_999 (x.py:1)" for one in branches if not one.folded)


def test_a_stack_that_is_too_deep_for_the_page_says_how_many_frames_are_not_on_it() -> None:
    deep = StackGroup(1, ("0:1",), "0", ("leaf (x.py:1)", *["recurse (x.py:2)"] * 998, "main (x.py:9)"))
    made = page(replace(hang(), stacks=(deep, StackGroup(1, ("1:1",), "1", ("f (x:1)",)))))
    first, second = made.stacks.groups
    assert (len(first.frames), first.frames_left_out) == (MOST_FRAMES, 1000 - MOST_FRAMES)
    assert second.frames_left_out == 0
    said = "600 further frames, towards the root, are not on this page"
    assert render_page(made).count(said) == 1


def test_a_long_set_of_ranks_is_cut_at_a_rank_and_says_how_many_it_has() -> None:
    diagnosis = replace(
        hang(), stacks=(StackGroup(1, ("0:1",), ",".join(map(str, range(0, 3000, 3))), ("f (x:1)",)),)
    )
    one = next(one for one in page(diagnosis).sets if one.is_cut)
    assert one.count == 1000
    assert len(one.ranks) <= LONGEST_SET
    assert int(one.ranks.rpartition(",")[2]) % 3 == 0


@pytest.mark.parametrize("folded", ["nonsense", "5-3", "0-99999999", "<b>"])
def test_a_damaged_set_of_ranks_is_shown_as_it_is(folded: str) -> None:
    damaged = StackGroup(1, ("0:1",), folded, ("f (x:1)",))
    made = page(replace(hang(), stacks=(damaged,), observed=folded))
    assert made.sets[made.stacks.groups[0].ranks] == RankSet(folded, 0)
    assert made.tree == ()
    assert inert(folded) in _Elements(render_page(made)).shown


def test_very_deep_stacks_make_a_page() -> None:
    deep = StackGroup(1, ("0:1",), "0", tuple(f"f{depth} (x.py:{depth})" for depth in range(30_000)))
    made = page(replace(hang(), stacks=(deep,)))
    assert len(made.tree) <= 500
    assert len(render_page(made)) < 500_000


def test_an_empty_diagnosis_makes_a_page() -> None:
    empty = replace(
        hang(), stacks=(), ranks=(), evidence=(), unobserved=(), culprits=(), nodes=(), location=None, job=""
    )
    shown = _Elements(render_page(page(empty))).shown
    assert "none: no rank stands out" in shown
    assert "No stack could be had" in shown


def test_every_field_of_the_document_is_documented() -> None:
    from rankscope.diag.report.html import document, live_data

    text = (Path(__file__).parents[2] / "docs" / "reference" / "report-document.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` ", text, re.MULTILINE))
    structs = [
        each
        for module in (document, live_data)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    ]
    fields = {name for each in structs for name in each.__struct_fields__}
    assert fields == documented
    assert {f"## {each.__name__}" for each in structs} <= set(text.splitlines())
