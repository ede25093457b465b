"""What frames, threads, source lines and wait channels mean: the catalogue, read from TOML text.

The patterns are data (``frames.toml`` beside this module says where each was seen); this module only
matches. It does not know what a label leads to.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import itertools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from rankscope.diag.errors import UsageError
from rankscope.diag.merge.normalise import bare_function, portable_file
from rankscope.diag.model import Frame, ThreadStack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Label = Literal[
    "collective",
    "p2p",
    "startup",
    "store_wait",
    "backward",
    "gpu_wait",
    "data_loading",
    "loader_wait",
    "checkpoint",
    "compile",
    "exit",
    "lock",
    "child_process",
    "storage",
    "network",
    "pause",
]

_NEVER: Final = re.compile(r"(?!)")
_CUT_MESSAGE: Final = 100  # characters: shorter messages are whole (measured: cut after 120)
_CUT_WORDS: Final = 5  # characters of the words that must be left: "Conne"
_REMEMBERED: Final = 65_536  # distinct frames and files


class _FrameEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Label
    functions: list[str]
    files: list[str] = []
    kind: Literal["python", "native"] = "python"


class _HintEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Label
    functions: list[str] = []
    files: list[str] = []


class _SourceEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Label
    pattern: str
    wchan: list[str] = []
    needs_wchan: bool = False
    needs_sleep: bool = False


class _WchanEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Label
    names: list[str]


class _CallEntry(msgspec.Struct, forbid_unknown_fields=True):
    label: Label
    functions: list[str]


class _ThreadEntry(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str] = []
    frames: list[str] = []


class _Sleep(msgspec.Struct, forbid_unknown_fields=True):
    functions: list[str] = []
    lines: list[str] = []


class _Paths(msgspec.Struct, forbid_unknown_fields=True):
    paths: list[str] = []


class _Exit(msgspec.Struct, forbid_unknown_fields=True):
    consequences: list[str] = []


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    schema: int = 1
    frames: list[_FrameEntry] = []
    hints: list[_HintEntry] = []
    source: list[_SourceEntry] = []
    wchan: list[_WchanEntry] = []
    calls: list[_CallEntry] = []
    threads: list[_ThreadEntry] = []
    sleep: _Sleep = msgspec.field(default_factory=_Sleep)
    library: _Paths = msgspec.field(default_factory=_Paths)
    user: _Paths = msgspec.field(default_factory=_Paths)
    exit: _Exit = msgspec.field(default_factory=_Exit)


@dataclass(frozen=True, slots=True)
class FramePattern:
    """A label and the frames that carry it."""

    label: Label
    kind: Literal["python", "native"]
    function: re.Pattern[str]
    file: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class SourcePattern:
    """A label and the source text that carries it; ``wchan`` narrows it where it is known."""

    label: Label
    text: re.Pattern[str]
    wchan: re.Pattern[str] | None
    needs_wchan: bool
    needs_sleep: bool = False


@dataclass(frozen=True, slots=True)
class HintPattern:
    """A label and the words of users' names that suggest it."""

    label: Label
    function: re.Pattern[str]
    file: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class WchanPattern:
    """A label and the functions of the kernel, or of the C library, that carry it."""

    label: Label
    name: re.Pattern[str]


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All patterns, most specific first; answers are remembered for each distinct frame."""

    frames: tuple[FramePattern, ...] = ()
    hints: tuple[HintPattern, ...] = ()
    sources: tuple[SourcePattern, ...] = ()
    wchans: tuple[WchanPattern, ...] = ()
    calls: tuple[WchanPattern, ...] = ()
    thread_names: tuple[re.Pattern[str], ...] = ()
    thread_frames: tuple[FramePattern, ...] = ()
    library_paths: tuple[re.Pattern[str], ...] = ()
    user_paths: tuple[re.Pattern[str], ...] = ()
    exit_consequences: tuple[str, ...] = ()
    sleeps: tuple[re.Pattern[str], ...] = ()
    blocking: tuple[re.Pattern[str], ...] = ()
    _labels: dict[Frame, Label | None] = field(default_factory=dict, repr=False)
    _user: dict[str, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str) -> Catalogue:
        """Read a catalogue.

        Raises:
            UsageError: not TOML, an unknown table, key or label, or a broken regular expression.
        """
        try:
            document = msgspec.convert(tomllib.loads(text), _Document)
            return _compiled(document)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, re.error) as error:
            raise UsageError(
                f"catalogue: {error}", hint="its tables and keys are described at the head of frames.toml"
            ) from None

    @classmethod
    def load(cls) -> Catalogue:
        """The catalogue that comes with the package, read once a process."""
        return load_catalogue()

    def merge(self, other: Catalogue) -> Catalogue:
        """This catalogue with ``other``'s entries asked first."""
        return Catalogue(
            frames=other.frames + self.frames,
            hints=other.hints + self.hints,
            sources=other.sources + self.sources,
            wchans=other.wchans + self.wchans,
            calls=other.calls + self.calls,
            thread_names=other.thread_names + self.thread_names,
            thread_frames=other.thread_frames + self.thread_frames,
            library_paths=other.library_paths + self.library_paths,
            user_paths=other.user_paths + self.user_paths,
            exit_consequences=other.exit_consequences + self.exit_consequences,
            sleeps=other.sleeps + self.sleeps,
            blocking=other.blocking + self.blocking,
        )

    def with_user_code(self, paths: Iterable[str]) -> Catalogue:
        """This catalogue with everything below ``paths`` taken for the user's own code."""
        own = tuple(_glob(f"{path.rstrip('/')}/*") for path in paths)
        return replace(self, user_paths=own + self.user_paths, _labels={}, _user={})

    def label(self, frame: Frame) -> Label | None:
        """What the frame says about where its rank stands, ``None`` for nothing."""
        if frame not in self._labels:
            if len(self._labels) >= _REMEMBERED:  # a bound for processes that live for months
                self._labels.clear()
            self._labels[frame] = _first(self.frames, frame)
        return self._labels[frame]

    def is_user_code(self, frame: Frame) -> bool:
        """Whether the frame is the user's own: not the standard library, not an installed package."""
        if frame.kind == "native" or not frame.file:
            return False
        known = self._user.get(frame.file)
        if known is None:
            if len(self._user) >= _REMEMBERED:
                self._user.clear()
            known = self._user[frame.file] = self._is_user_file(frame.file)
        return known

    def _is_user_file(self, file: str) -> bool:
        if any(path.match(file) for path in self.user_paths):
            return True
        return not any(path.match(file) for path in self.library_paths)

    def hint(self, frame: Frame, *, with_file: bool) -> Label | None:
        """What a user's frame is about, by the words in its names."""
        name = bare_function(frame.function).lower()
        file = frame.file.rpartition("/")[2].lower()
        for pattern in self.hints:
            if pattern.function.match(name) or (with_file and pattern.file.match(file)):
                return pattern.label
        return None

    def source_label(self, text: str | None, wchan: str | None, *, asleep: bool = False) -> Label | None:
        """What the user's line waits for, by its text and, where known, the kernel's wait channel.

        Args:
            text: the line, ``None`` when it cannot be had.
            wchan: the kernel function its thread sleeps in, ``None`` when unknown.
            asleep: whether the dump shows that its thread does not run.
        """
        if not text:
            return None
        for pattern in self.sources:
            if not pattern.text.search(text) or (pattern.needs_sleep and not asleep):
                continue
            if wchan is None or pattern.wchan is None:
                if not pattern.needs_wchan:
                    return pattern.label
            elif pattern.wchan.match(wchan):
                return pattern.label
        return None

    def may_block(self, text: str) -> bool:
        """Whether a line reads like a call that sleeps in the kernel, were it asleep."""
        patterns = itertools.chain((pattern.text for pattern in self.sources), self.blocking)
        return any(pattern.search(text) for pattern in patterns)

    def wchan_label(self, wchan: str | None) -> Label | None:
        """What a thread sleeping in this kernel function waits for."""
        if not wchan:
            return None
        return next((pattern.label for pattern in self.wchans if pattern.name.match(wchan)), None)

    def call_label(self, frames: tuple[Frame, ...]) -> Label | None:
        """What the C library's function at the leaf waits for, ``None`` where the leaf is none of it."""
        for frame in itertools.takewhile(lambda frame: frame.kind == "native", frames):
            name = bare_function(frame.function).lstrip("_")
            for pattern in self.calls:
                if pattern.name.match(name):
                    return pattern.label
        return None

    def is_asleep(self, frames: tuple[Frame, ...]) -> bool:
        """Whether native frames at the leaf are in a call of the C library that sleeps in the kernel."""
        native = itertools.takewhile(lambda frame: frame.kind == "native", frames)
        names = (bare_function(frame.function).lstrip("_") for frame in native)
        return any(pattern.match(name) for name in names for pattern in self.sleeps)

    def is_auxiliary(self, thread: ThreadStack) -> bool:
        """Whether the thread only serves others: it never decides where its rank stands."""
        if thread.is_main:
            return False
        if not thread.frames:
            return True
        if thread.name and any(name.match(thread.name) for name in self.thread_names):
            return True
        return any(_matches(pattern, frame) for frame in thread.frames for pattern in self.thread_frames)

    def is_consequence(self, message: str) -> bool:
        """Whether a rank that ended with this message died of another rank's end.

        Messages are cut to a line's length: one that ends inside such words counts as well.
        """
        if any(words in message for words in self.exit_consequences):
            return True
        return len(message) >= _CUT_MESSAGE and any(
            message.endswith(words[:length])
            for words in self.exit_consequences
            for length in range(_CUT_WORDS, len(words))
        )


@functools.lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """The catalogue that comes with the package, read once."""
    text = importlib.resources.files("rankscope.diag.classify").joinpath("frames.toml").read_text("utf-8")
    return Catalogue.parse(text)


def _compiled(document: _Document) -> Catalogue:
    return Catalogue(
        frames=tuple(
            FramePattern(entry.label, entry.kind, _globs(entry.functions), _files(entry.files))
            for entry in document.frames
        ),
        hints=tuple(
            HintPattern(entry.label, _globs(entry.functions), _globs(entry.files)) for entry in document.hints
        ),
        sources=tuple(
            SourcePattern(
                entry.label,
                re.compile(entry.pattern),
                _globs(entry.wchan) if entry.wchan else None,
                entry.needs_wchan,
                entry.needs_sleep,
            )
            for entry in document.source
        ),
        wchans=tuple(WchanPattern(entry.label, _globs(entry.names)) for entry in document.wchan),
        calls=tuple(WchanPattern(entry.label, _globs(entry.functions)) for entry in document.calls),
        thread_names=tuple(_globs(entry.names) for entry in document.threads if entry.names),
        thread_frames=tuple(_spelled(text) for entry in document.threads for text in entry.frames),
        library_paths=(_globs(document.library.paths),) if document.library.paths else (),
        user_paths=(_globs(document.user.paths),) if document.user.paths else (),
        exit_consequences=tuple(document.exit.consequences),
        sleeps=(_globs(document.sleep.functions),) if document.sleep.functions else (),
        blocking=tuple(re.compile(line) for line in document.sleep.lines),
    )


def _first(patterns: Iterable[FramePattern], frame: Frame) -> Label | None:
    return next((pattern.label for pattern in patterns if _matches(pattern, frame)), None)


def _matches(pattern: FramePattern, frame: Frame) -> bool:
    if pattern.kind != frame.kind or not pattern.function.match(bare_function(frame.function)):
        return False
    return pattern.file is None or pattern.file.match(portable_file(frame.file)) is not None


def _spelled(text: str) -> FramePattern:
    """``function (file)`` as in [[threads]]; the label is not used."""
    function, _, file = text.partition(" (")
    return FramePattern("lock", "python", _glob(function), _files([file.rstrip(")")]) if file else None)


def _files(globs: list[str]) -> re.Pattern[str] | None:
    """Files match whole or as the tail of a path."""
    if not globs:
        return None
    return _globs([spelling for glob in globs for spelling in (glob, f"*/{glob}")])


def _globs(globs: list[str]) -> re.Pattern[str]:
    if not globs:
        return _NEVER
    return re.compile("|".join(fnmatch.translate(glob) for glob in globs))


def _glob(glob: str) -> re.Pattern[str]:
    return _globs([glob])
