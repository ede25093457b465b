"""Any mix of flags, variables, a file and a line of AIMaster's resolves by strength, or is one clear line."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settings_factory import NOT_ALLOWED, SAMPLES

from rankscope.agent.commands.run import build_parser
from rankscope.agent.settings.aimaster import DEFAULTS
from rankscope.agent.settings.command_line import attach_values
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.settings.shown import described
from rankscope.agent.settings.table import OPTIONS
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError

BY_NAME: Final = {option.name: option for option in OPTIONS}
TEXTS: Final = {
    name: [(text, True), *((bad, False) for known, bad in NOT_ALLOWED if known == name)]
    for name, (text, _) in SAMPLES.items()
}
ENTANGLED: Final = frozenset(
    {
        "enable-job-restart",
        "max-num-of-job-restart",
        "enable-job-hang-detection",
        "enable-c4d-hang-detection",
        "enable-job-exit-hang-detection",
        "job-exit-hang-interval",
        "diagnose-after",
        "job-hang-interval",
    }
)
"""Settings that others may change."""
Said = Mapping[str, tuple[str, bool]]


def some_settings() -> st.SearchStrategy[dict[str, tuple[str, bool]]]:
    """A few settings, mostly with a text that is allowed."""
    one = st.sampled_from(sorted(TEXTS)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.one_of(st.just(TEXTS[name][0]), st.just(TEXTS[name][0]), st.sampled_from(TEXTS[name])),
        )
    )
    return st.lists(one, max_size=6).map(dict)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return build_parser()


def resolved(parser: argparse.ArgumentParser, home: Path, said: Mapping[str, Said]) -> Settings:
    words = [f"--{name}={text}" for name, (text, _) in said["flags"].items()]
    if "line" in said:
        line = shlex.join(f"--{name}={text}" for name, (text, _) in said["line"].items())
        words += ["--aimaster-args", line]
    environ = {BY_NAME[name].variable: text for name, (text, _) in said["variables"].items()}
    lines = [f"{name.replace('-', '_')} = {json.dumps(text)}\n" for name, (text, _) in said["file"].items()]
    (home / "config.toml").write_text("".join(lines))
    arguments = parser.parse_args(attach_values([*words, "train.py"], parser))
    return resolve(arguments, environ | {"RANKSCOPE_HOME": str(home)}, has_gpu=True)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {"flags": some_settings(), "variables": some_settings(), "file": some_settings()},
        optional={"line": some_settings()},
    )
)
def test_the_strongest_source_holds_or_one_line_says_what_is_wrong(
    parser: argparse.ArgumentParser, home: Path, said: dict[str, dict[str, tuple[str, bool]]]
) -> None:
    sources = expected_sources(said, home)
    wrong = {source for source, fine in sources.values() if not fine}
    try:
        chosen = resolved(parser, home, said)
    except UsageError as error:
        one_line_about(str(error), wrong)
        return
    assert not wrong
    shown = described(chosen)
    json.dumps(shown)
    for name in SAMPLES.keys() - ENTANGLED:
        source = sources.get(name, ("default", True))[0]
        assert shown[name]["source"] == source
        if source not in {"default", "AIMaster's default"}:
            assert shown[name]["value"] == SAMPLES[name][1]
    assert all(note.isprintable() for note in chosen.notes)
    what_belongs_together(chosen)


def expected_sources(said: Mapping[str, Said], home: Path) -> dict[str, tuple[str, bool]]:
    """By setting: its strongest source, and whether what that says is allowed."""
    sources: dict[str, tuple[str, bool]] = {}
    file = home / "config.toml"
    if "line" in said:
        sources |= dict.fromkeys(DEFAULTS, ("AIMaster's default", True))
    for name, (_, fine) in said["file"].items():
        sources[name] = (f"{file}: {name.replace('-', '_')}", fine)
    for name, (_, fine) in said["variables"].items():
        sources[name] = (BY_NAME[name].variable, fine)
    for name, (_, fine) in said.get("line", {}).items():
        sources[name] = (f"--aimaster-args --{name}", fine)
    for name, (_, fine) in said["flags"].items():
        sources[name] = (f"--{name}", fine)
    return sources


def one_line_about(message: str, wrong: set[str]) -> None:
    assert message.isprintable()
    assert len(message) < 500
    if any(message.startswith(source) for source in wrong):
        return
    assert not wrong
    assert ": needs hang detection, which is off" in message


def what_belongs_together(chosen: Settings) -> None:
    if chosen.execution_mode == "Async":
        assert not chosen.hang_detection
        assert chosen.hang.exit_after is None
    elif not chosen.restart_enabled:
        assert chosen.max_restarts == 0
    assert chosen.hang_detection or not chosen.c4d
    assert all(value is None or value > 0 for value in (chosen.hang.diagnose_after, chosen.hang.act_after))


RESTART_WORDS: Final = st.fixed_dictionaries(
    {},
    optional={
        "max-num-of-job-restart": st.sampled_from(["0", "1", "4"]),
        "max-restarts": st.sampled_from(["0", "1", "4"]),
        "enable-job-restart": st.sampled_from(["True", "False"]),
    },
)
VARIABLES: Final = {
    "max-num-of-job-restart": "RANKSCOPE_MAX_NUM_OF_JOB_RESTART",
    "max-restarts": "PET_MAX_RESTARTS",
    "enable-job-restart": "RANKSCOPE_ENABLE_JOB_RESTART",
}


@settings(max_examples=150, deadline=None)
@given(st.tuples(RESTART_WORDS, RESTART_WORDS, RESTART_WORDS))
def test_restarts_are_one_number_and_a_no_of_the_same_strength_wins(
    parser: argparse.ArgumentParser, home: Path, layers: tuple[dict[str, str], dict[str, str], dict[str, str]]
) -> None:
    flags, variables, file = layers
    environ = {VARIABLES[name]: text for name, text in variables.items()} | {"RANKSCOPE_HOME": str(home)}
    (home / "config.toml").write_text("".join(f"{name} = '{text}'\n" for name, text in file.items()))
    words = [*(f"--{name}={text}" for name, text in flags.items()), "train.py"]
    arguments = parser.parse_args(attach_values(words, parser))
    if clash(layers):
        with pytest.raises(UsageError, match=r": the same number, give it once$"):
            resolve(arguments, environ, has_gpu=False)
        return
    chosen = resolve(arguments, environ, has_gpu=False)
    assert (chosen.restart_enabled, chosen.max_restarts) == expected_restarts(layers)


def place_of(name: str, layers: Sequence[Mapping[str, str]]) -> int:
    return next((place for place, layer in enumerate(layers) if name in layer), len(layers))


def clash(layers: Sequence[Mapping[str, str]]) -> bool:
    """Two numbers of different names, each the strongest of its name, and as strong as each other."""
    place = place_of("max-restarts", layers)
    if place == len(layers) or place != place_of("max-num-of-job-restart", layers):
        return False
    return layers[place]["max-restarts"] != layers[place]["max-num-of-job-restart"]


def expected_restarts(layers: Sequence[Mapping[str, str]]) -> tuple[bool, int]:
    numbers = {place_of(name, layers): name for name in ("max-restarts", "max-num-of-job-restart")}
    number_at, answer_at = min(numbers), place_of("enable-job-restart", layers)
    number = int(layers[number_at][numbers[number_at]]) if number_at < len(layers) else None
    enabled = layers[answer_at]["enable-job-restart"] == "True" if answer_at < len(layers) else False
    if number and number_at < answer_at:
        enabled = True
    return enabled, (3 if number is None else number) if enabled else 0
