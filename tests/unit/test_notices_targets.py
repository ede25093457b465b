"""Where notices go: what is read, what is refused in one line, and that nothing secret is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.agent.notices.targets import Command, Webhook, is_open, read_targets, shown_webhook
from rankscope.agent.notices.topics import TOPICS, wanted_types
from rankscope.diag.errors import UsageError

SECRET = "T00-B11-s3cr3t"
URL = f"https://hooks.example.com:8443/services/{SECRET}?key={SECRET}"


def read(text: str, environ: dict[str, str] | None = None) -> Webhook:
    (found,) = read_targets([text], "cloudevents", "", environ or {})
    assert isinstance(found, Webhook)
    return found


def refused(text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read(text, environ)
    line = f"{caught.value}"
    assert "\n" not in line
    assert SECRET not in line
    return line


def test_an_address_comes_from_a_file_with_its_headers(tmp_path: Path) -> None:
    path = tmp_path / "hook"
    path.write_text(f"{URL}\n\nAuthorization: Bearer {SECRET}\r\nX-Token:abc\n")
    hook = read(f"@{path}")
    assert hook.url == URL
    assert hook.headers == (("Authorization", f"Bearer {SECRET}"), ("X-Token", "abc"))


def test_an_address_comes_from_a_variable() -> None:
    assert read("env:HOOK", {"HOOK": f"{URL}\nAuthorization: Bearer x"}).headers == (
        ("Authorization", "Bearer x"),
    )


def test_a_user_and_a_password_become_a_header_and_leave_the_address() -> None:
    hook = read(f"http://me:p%40ss-{SECRET}@host/x")
    assert hook.url == "http://host/x"
    assert dict(hook.headers)["Authorization"].startswith("Basic bWU6cEBzcy1")
    assert hook.label == "webhook http://host"


@pytest.mark.parametrize("url", [URL, f"https://{SECRET}:{SECRET}@[::1]:8443/{SECRET}#{SECRET}"])
def test_only_the_server_is_ever_shown(url: str) -> None:
    hook = read(f"{url}")
    assert SECRET not in f"{hook!r} {hook.label} {shown_webhook(url)}"
    assert ":8443" in hook.label
    assert shown_webhook("@/etc/hook") == "@/etc/hook"
    assert shown_webhook("env:HOOK") == "env:HOOK"
    assert shown_webhook(SECRET) == "an address"
    assert shown_webhook(f"https://[{SECRET}") == "an address"


def test_an_address_as_typed_is_itself_the_secret() -> None:
    assert is_open(URL)
    assert not is_open("@file")
    assert not is_open("env:NAME")


@pytest.mark.parametrize(
    "text",
    [
        f"ftp://host/{SECRET}",
        f"https:///{SECRET}",
        f"//host/{SECRET}",
        f"https://host:99999/{SECRET}",
        f"https://host:port/{SECRET}",
        f"https://host/{SECRET} x",
        f"https://host/{SECRET}\u00e9",
        f"https://host..name/{SECRET}",
        f"https://[::1/{SECRET}",
        SECRET,
        "",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(text: str) -> None:
    assert refused(text).startswith("--webhook: ")


def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert refused(f"@{tmp_path}/none") == (
        f"--webhook @{tmp_path}/none: cannot be read (No such file or directory)"
    )
    assert "Is a directory" in refused(f"@{tmp_path}")
    assert refused("env:HOOK") == "--webhook env:HOOK: there is no such variable, or it is empty"
    (tmp_path / "empty").write_text("\n \n")
    assert refused(f"@{tmp_path}/empty").endswith("it is empty")
    (tmp_path / "long").write_text("x" * 20_000)
    assert "longer than" in refused(f"@{tmp_path}/long")
    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    assert "expected" in refused(f"@{tmp_path}/binary")


@pytest.mark.parametrize(
    "header", [f"Bearer {SECRET}", f"Host: {SECRET}", f"content-type: {SECRET}", f"X: {SECRET}\x01", "X:"]
)
def test_a_line_that_is_no_header_to_send_is_refused_by_its_number(header: str) -> None:
    assert "line 2 is no header" in refused("env:HOOK", {"HOOK": f"{URL}\n{header}"})


def test_several_webhooks_are_told_apart_and_the_wrong_one_is_named() -> None:
    hooks = read_targets([URL, "https://other/x"], "slack", "", {})
    assert [hook.label for hook in hooks] == [
        "webhook 1 https://hooks.example.com:8443",
        "webhook 2 https://other",
    ]
    with pytest.raises(UsageError, match="--webhook 2: an http or https address"):
        read_targets([URL, "other"], "slack", "", {})


def test_a_command_is_split_as_a_shell_does_and_found_on_the_path(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    (command,) = read_targets([], "slack", "tell 'on call' --x", {"PATH": str(tmp_path)})
    assert isinstance(command, Command)
    assert command.words == (str(program), "on call", "--x")
    assert "on call" not in repr(command)


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such-program x", "no such command: no-such-program"), ("sh 'x", "No closing quotation")],
)
def test_a_command_that_cannot_be_run_is_refused(command: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_targets([], "slack", command, {"PATH": "/usr/bin:/bin"})


def test_nothing_asked_for_is_no_target() -> None:
    assert read_targets([], "slack", "  ", {}) == ()


def test_a_failed_notice_is_never_told_and_unknown_words_stand_for_nothing() -> None:
    types = wanted_types([*TOPICS, "nonsense"])
    assert "rankscope.notice.failed" not in types
    assert "rankscope.incident.confirmed" in types
    assert wanted_types(["end"]) == {"rankscope.stopping", "rankscope.job.ended"}
    assert wanted_types([]) == frozenset()
