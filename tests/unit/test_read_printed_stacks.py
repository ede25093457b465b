"""Stacks that programs print themselves, in the forms of several authors."""

from __future__ import annotations

import pytest
from tests.reading_factory import PREFIXES, functions, log, one_dump, read, wrapped

UNKNOWN = {"stern", "pdsh", "logging", "a template of the user's"}
"""Prefixes that are learned from the headers of tools."""

WITH_NAMES = """\

# Thread: pin-memory(140085231437568)
File: "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
  self._bootstrap_inner()
File: "/app/pin.py", line 8, in pin

# Thread: MainThread(140087023904576)
File: "/app/train.py", line 90, in <module>
  main()
File: "/app/train.py", line 40, in main
  dist.all_reduce(loss)
"""
BY_NUMBER = """\
# ThreadID: 140085231437568
File: "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
  self._bootstrap_inner()
File: "/app/pin.py", line 8, in pin
  time.sleep(1)

# ThreadID: 140087023904576
File: "/app/train.py", line 90, in <module>
  main()
File: "/app/train.py", line 40, in main
  dist.all_reduce(loss)
"""
DASHES = BY_NUMBER.replace("# ThreadID: 140085231437568", "-- Thread ID: 140085231437568 ---").replace(
    "# ThreadID: 140087023904576", "-- Thread ID: 140087023904576 ---"
)
PRINT_STACK = """\
--- Stack for thread 140085231437568 ---
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
    ^^^^^^^^^^^^^^^^^^^^^^^
  File "/app/pin.py", line 8, in pin
    time.sleep(1)

--- Stack for thread 140087023904576 ---
  File "/app/train.py", line 90, in <module>
    main()
  File "/app/train.py", line 40, in main
    dist.all_reduce(loss)
"""
HEXADECIMAL = PRINT_STACK.replace(
    "--- Stack for thread 140085231437568 ---", "Thread ID: 0x7F680AD8"
).replace("--- Stack for thread 140087023904576 ---", "Thread ID: 0x7F680AD9")
ONE_LINE = """\
# Thread #0 (id=140085231437568), pin
File: "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap self._bootstrap_inner()
File: "/app/pin.py", line 8, in pin time.sleep(1)

# Thread #1 (id=140087023904576), MainThread
File: "/app/train.py", line 90, in <module> main()
File: "/app/train.py", line 40, in main dist.all_reduce(loss)
"""


@pytest.mark.parametrize("text", [WITH_NAMES, BY_NUMBER, DASHES, PRINT_STACK, HEXADECIMAL, ONE_LINE])
def test_a_stack_that_a_program_printed_is_read(text: str) -> None:
    dump = one_dump(text.encode())
    assert dump.source == "printed"
    other, main = dump.threads
    assert functions(other) == ["pin", "_bootstrap"]
    assert functions(main) == ["main", "<module>"]
    assert main.is_main
    leaf = main.frames[0]
    assert (leaf.file, leaf.line, leaf.source) == ("/app/train.py", 40, "dist.all_reduce(loss)")


@pytest.mark.parametrize("prefix", sorted(set(PREFIXES) - UNKNOWN))
def test_it_is_read_behind_a_prefix(prefix: str) -> None:
    lines = wrapped(PRINT_STACK.encode(), PREFIXES[prefix])
    (dump,) = read(log(["starting", *lines, "step 3"])).dumps
    assert [functions(thread) for thread in dump.threads] == [["pin", "_bootstrap"], ["main", "<module>"]]


def test_the_printer_itself_is_left_out() -> None:
    text = f"""{BY_NUMBER.removesuffix(chr(10))}
File: "/usr/lib/python3.11/site-packages/torch/x.py", line 3, in wait
  return work.wait()
File: "/app/debug.py", line 5, in on_signal
  dump_all()
File: "/app/debug.py", line 9, in dump_all
  for thread, stack in sys._current_frames().items():
"""
    dump = one_dump(text.encode())
    assert functions(dump.threads[1]) == ["wait", "main", "<module>"]


def test_the_same_threads_again_are_a_second_look() -> None:
    assert len(read(BY_NUMBER + "\nstep 3 took 2 s\n" * 30 + BY_NUMBER).dumps) == 2


TRACEBACK = """\
Traceback (most recent call last):
  File "t.py", line 3, in main
    x
ValueError: no
"""


@pytest.mark.parametrize(
    "text",
    [
        "started thread 140087023904576\nstep 1\n",
        "# Thread: MainThread(140087023904576)\nstep 1\n",
        f"Thread 140087023904576 has ended\n{TRACEBACK}",
    ],
)
def test_words_about_threads_are_no_dump(text: str) -> None:
    assert not read(text).dumps


def test_a_traceback_right_behind_a_printed_stack_is_none_of_it() -> None:
    contents = read(PRINT_STACK + TRACEBACK)
    (dump,) = contents.dumps
    assert functions(dump.threads[1]) == ["main", "<module>"]
    assert [fact.text for fact in contents.facts] == ["ValueError: no"]


def test_a_stack_without_a_header_is_counted() -> None:
    text = 'stack:\n  File "t.py", line 3, in <module>\n    main()\n  File "t.py", line 9, in main\n    x()\n'
    contents = read(text)
    assert not contents.dumps
    assert contents.problems == {"lines of stacks whose form is not known": 2}
    assert not read(TRACEBACK).problems
