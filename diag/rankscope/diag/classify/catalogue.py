"""What frames, threads, source lines and wait channels mean: the catalogue, read from TOML text.

The patterns are data (``frames.toml`` beside this module says where each was seen); this module only
matches. It does not know what a label leads to.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rankscope.diag.classify.catalogue_text import Document, Mistake, read_catalogue_text
from rankscope.diag.classify.patterns import (
    CallerPattern,
    FramePattern,
    HintPattern,
    Label,
    NamePattern,
    SourcePattern,
    below,
    files,
    first_label,
    globs,
    spelled,
)
from rankscope.diag.classify.stack_memory import StackMemory
from rankscope.diag.errors import UsageError
from rankscope.diag.merge.normalise import bare_function, portable_file
from rankscope.diag.model import Frame, ThreadStack

__all__ = ["Catalogue", "Label", "load_catalogue", "packaged_text"]

_CUT_MESSAGE: Final = 100  # characters: shorter messages are whole (measured: cut after 120)
_CUT_WORDS: Final = 5  # characters of the words that must be left: "Conne"
_REMEMBERED: Final = 65_536  # distinct frames and files


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All patterns, most specific first; answers are remembered for each distinct frame."""

    frames: tuple[FramePattern, ...] = ()
    hints: tuple[HintPattern, ...] = ()
    sources: tuple[SourcePattern, ...] = ()
    wchans: tuple[NamePattern, ...] = ()
    calls: tuple[NamePattern, ...] = ()
    thread_names: tuple[re.Pattern[str], ...] = ()
    thread_frames: tuple[FramePattern, ...] = ()
    decorators: tuple[FramePattern, ...] = ()
    library_paths: tuple[re.Pattern[str], ...] = ()
    callers: tuple[CallerPattern, ...] = ()
    plumbing_paths: tuple[re.Pattern[str], ...] = ()
    user_paths: tuple[re.Pattern[str], ...] = ()
    exit_consequences: tuple[str, ...] = ()
    sleeps: tuple[re.Pattern[str], ...] = ()
    blocking: tuple[re.Pattern[str], ...] = ()
    _labels: dict[Frame, Label | None] = field(default_factory=dict, repr=False)
    _serving: dict[Frame, bool] = field(default_factory=dict, repr=False)
    _helpers: dict[str, bool] = field(default_factory=dict, repr=False)
    of_stacks: StackMemory = field(default_factory=StackMemory, repr=False, compare=False)
    _user: dict[str, bool] = field(default_factory=dict, repr=False)
    _plumbing: dict[str, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, text: str) -> tuple[Catalogue, tuple[Mistake, ...]]:
        """Read a catalogue: what of it is right, and every mistake."""
        read = read_catalogue_text(text)
        return _compiled(read.document), read.mistakes

    @classmethod
    def parse(cls, text: str, *, name: str = "catalogue") -> Catalogue:
        """Read a catalogue that must be right.

        Args:
            text: the file's.
            name: what the file is called in the error.

        Raises:
            UsageError: with a line for each mistake.
        """
        catalogue, mistakes = cls.read(text)
        if mistakes:
            raise UsageError("\n".join(mistake.told(name) for mistake in mistakes))
        return catalogue

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
            decorators=other.decorators + self.decorators,
            library_paths=other.library_paths + self.library_paths,
            callers=other.callers + self.callers,
            plumbing_paths=other.plumbing_paths + self.plumbing_paths,
            user_paths=other.user_paths + self.user_paths,
            exit_consequences=other.exit_consequences + self.exit_consequences,
            sleeps=other.sleeps + self.sleeps,
            blocking=other.blocking + self.blocking,
        )

    def with_user_code(self, paths: Iterable[str]) -> Catalogue:
        """This catalogue with the files and folders at ``paths`` taken for the user's own code."""
        own = tuple(below(path) for path in paths)
        return replace(self, user_paths=own + self.user_paths, _labels={}, _user={}, of_stacks=StackMemory())

    def label(self, frame: Frame) -> Label | None:
        """What the frame says about where its rank stands, ``None`` for nothing."""
        if frame not in self._labels:
            if len(self._labels) >= _REMEMBERED:  # a bound for processes that live for months
                self._labels.clear()
            self._labels[frame] = first_label(self.frames, frame)
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
        return known and not any(caller.matches(frame) for caller in self.callers)

    def _is_user_file(self, file: str) -> bool:
        if any(path.match(file) for path in self.user_paths):
            return True
        return not any(path.match(file) for path in self.library_paths)

    def is_plumbing(self, frame: Frame) -> bool:
        """Whether every wait may pass through the frame: it tells nothing of who waits, or for what."""
        if frame.kind == "native" or not frame.file or frame.file.startswith("<"):
            return True
        known = self._plumbing.get(frame.file)
        if known is None:
            if len(self._plumbing) >= _REMEMBERED:
                self._plumbing.clear()
            file = portable_file(frame.file)
            known = self._plumbing[frame.file] = any(path.match(file) for path in self.plumbing_paths)
        return known

    def is_decorator(self, frame: Frame) -> bool:
        """Whether the frame only stands around a call that another one makes."""
        return any(pattern.matches(frame) for pattern in self.decorators)

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
        if thread.name and self._is_helpers_name(thread.name):
            return True
        return self.of_stacks.once(
            "serves", thread.frames, lambda frames: any(map(self._serves_others, frames))
        )

    def idles(self, frames: tuple[Frame, ...]) -> bool:
        """Whether frames, leaf first, are those of a loop that serves others, and serves none just now."""
        return self.of_stacks.once("idles", frames, self._idles)

    def _idles(self, frames: tuple[Frame, ...]) -> bool:
        outside = itertools.dropwhile(
            lambda frame: not (self._serves_others(frame) or self.is_user_code(frame)), frames
        )
        first = next(outside, None)
        return first is not None and self._serves_others(first)

    def _is_helpers_name(self, name: str) -> bool:
        known = self._helpers.get(name)
        if known is None:
            if len(self._helpers) >= _REMEMBERED:
                self._helpers.clear()
            known = self._helpers[name] = any(pattern.match(name) for pattern in self.thread_names)
        return known

    def _serves_others(self, frame: Frame) -> bool:
        known = self._serving.get(frame)
        if known is None:
            if len(self._serving) >= _REMEMBERED:
                self._serving.clear()
            known = self._serving[frame] = any(pattern.matches(frame) for pattern in self.thread_frames)
        return known

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


def packaged_text() -> str:
    """``frames.toml`` as it comes with the package."""
    return importlib.resources.files("rankscope.diag.classify").joinpath("frames.toml").read_text("utf-8")


@functools.lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """The catalogue that comes with the package, read once."""
    return Catalogue.parse(packaged_text(), name="frames.toml")


def _compiled(document: Document) -> Catalogue:
    return Catalogue(
        frames=tuple(
            FramePattern(entry.label, entry.kind, globs(entry.functions), files(entry.files))
            for entry in document.frames
        ),
        hints=tuple(
            HintPattern(entry.label, globs(entry.functions), globs(entry.files)) for entry in document.hints
        ),
        sources=tuple(
            SourcePattern(
                entry.label,
                re.compile(entry.pattern),
                globs(entry.wchan) if entry.wchan else None,
                entry.needs_wchan,
                entry.needs_sleep,
            )
            for entry in document.source
        ),
        wchans=tuple(NamePattern(entry.label, globs(entry.names)) for entry in document.wchan),
        calls=tuple(NamePattern(entry.label, globs(entry.functions)) for entry in document.calls),
        thread_names=tuple(globs(entry.names) for entry in document.threads if entry.names),
        thread_frames=tuple(spelled(text) for entry in document.threads for text in entry.frames),
        decorators=tuple(spelled(text) for entry in document.decorators for text in entry.frames),
        library_paths=tuple(globs(entry.paths) for entry in document.library if not entry.functions),
        callers=tuple(
            CallerPattern(globs(entry.paths), globs(entry.functions), entry.first_line)
            for entry in document.library
            if entry.functions
        ),
        plumbing_paths=tuple(globs(entry.paths) for entry in document.library if entry.plumbing),
        user_paths=tuple(globs(entry.paths) for entry in document.user if entry.paths),
        exit_consequences=tuple(words for entry in document.exit for words in entry.consequences),
        sleeps=tuple(globs(entry.functions) for entry in document.sleep if entry.functions),
        blocking=tuple(re.compile(line) for entry in document.sleep for line in entry.lines),
    )
