"""What is taken out of texts and records, and what must stay for a diagnosis to be read."""

from __future__ import annotations

import itertools
import random
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankscope.agent.settings import table
from rankscope.agent.settings.option import Option
from rankscope.diag.redact.names import Names, numbered
from rankscope.diag.redact.records import redacted
from rankscope.diag.redact.secret_names import SECRET_SETTINGS
from rankscope.diag.redact.spans import REMOVED, Span, merged
from rankscope.diag.redact.text import Redactor


def without_secrets(text: str) -> tuple[str, int]:
    """A text without secrets and exported variables, and how many there were."""
    redactor = Redactor(Names({}, {}))
    return redactor.text(text), sum(redactor.counted().values())


def a_redactor(*secrets: str, keep_hosts: bool = False) -> Redactor:
    hosts = {} if keep_hosts else numbered(["gpu-node-17", "vm"], "node")
    users = numbered(["alice", "bo", "root"], "user")
    return Redactor(
        Names(users, hosts, {"/data/people/carol": "/home/user"}, keeps_addresses=keep_hosts), secrets
    )


SECRETS = [
    "train.py --token=s3cr3tvalue --lr 0.1",
    "train.py --api-key s3cr3tvalue",
    "train.py --wandb_api_key 's3cr3tvalue'",
    "WANDB_API_KEY=s3cr3tvalue python train.py",
    "export AWS_SECRET_ACCESS_KEY=s3cr3tvalue",
    '{"hf_token": "s3cr3tvalue"}',
    "{'password': 's3cr3tvalue'}",
    "password: s3cr3tvalue",
    "Authorization: Bearer s3cr3tvalue",
    "curl -H 'authorization: Basic s3cr3tvalue'",
    "postgres://bob:s3cr3tvalue@db:5432/x",
    "https://s3cr3tvalue@github.com/x/y.git",
    "https://host/path?X-Amz-Signature=s3cr3tvalue&x=1",
    "https://acc.blob.core.windows.net/c?sv=2020&sig=s3cr3tvalue",
    "https://hooks.slack.com/services/s3cr3tvalue/B00/XX",
    "hf_s3cr3tvalueAAAAAAAAAAAAAAAA",
    "ghp_s3cr3tvalueAAAAAAAAAAAAAAAA",
    "sk-s3cr3tvalue-AAAAAAAAAAAA",
    "glpat-s3cr3tvalueAAAAAAA",
    "eyJhbGciOiJIUzI1NiJ9.s3cr3tvalueAAAA.abcdef",
    "-----BEGIN OPENSSH PRIVATE KEY-----\ns3cr3tvalue\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\ns3cr3tvalue\nand the file ends",
    "set-cookie: s3cr3tvalue",
    r'{"message": "{\"token\":\"s3cr3tvalue\"}"}',
    r'{"a": "{\"b\": \"{\\\"token\\\": \\\"s3cr3tvalue\\\"}\"}"}',
    "{'token':\n   's3cr3tvalue'}",
    "https://bob:s3cr@tvalue@host/p",
    "https://bob:s3cr3/tvalue@host/p",
    "http://a,http://bob:s3cr3tvalue@host/p",
    "password='s3cr3tvalue",
    'password="some s3cr3tvalue',
    "password:\n  s3cr3tvalue",
    "password: |\n  s3cr3tvalue",
    "passwords:\n  - s3cr3tvalue",
    "password=ab,s3cr3tvalue",
    'password=ab"s3cr3tvalue',
    "password=ab)s3cr3tvalue",
    "password=['x', 's3cr3tvalue']",
    "passphrase: horse s3cr3tvalue",
    "GET /?api%5Fkey=s3cr3tvalue&x=1",
    "next=https%3A%2F%2Fh%3Faccess_token%3Ds3cr3tvalue",
    "machine h login bob password s3cr3tvalue",
    "machine h\n  login bob\n  password secretvalue-s3cr3tvalue\n",
    "login bob password s3cr3tvalue",
    "the password s3cr3tvalue was refused",
    "train.py --pass s3cr3tvalue",
    "sshpass -p s3cr3tvalue ssh host",
    "sshpass -ps3cr3tvalue ssh host",
    "mysql -u bob -p s3cr3tvalue db",
    "mysql -u bob -ps3cr3tvalue db",
    "curl -s -u bob:s3cr3tvalue https://h",
    "curl --user bob:s3cr3tvalue https://h",
    "curl --user=bob:s3cr3tvalue https://h",
    "sshpass -p x curl -u bob:s3cr3tvalue https://h",
    "docker login -u bob -p s3cr3tvalue registry",
    "redis-cli -a s3cr3tvalue",
    "run: export MY_VARIABLE=s3cr3tvalue; python x",
    "environ({'MYVAR': 's3cr3tvalue'})",
    "environ({'A': 'x', 'MYVAR': 's3cr3tvalue",
    "environ({'A': '})', 'MYVAR': 's3cr3tvalue'})",
    "MY_KEY=s3cr3tvalue",
    "API key: s3cr3tvalue",
    "dbPass=s3cr3tvalue",
    "dckr_pat_s3cr3tvalueAAAAAAAAAAAA",
    "pypi-s3cr3tvalueAAAAAAAAAAAA",
    "sk_live_s3cr3tvalueAAAA",
    "xoxb-s3cr3tvalue-1",
    "github_pat_s3cr3tvalueAAAAAAAAAAAA",
    'Authorization: Digest username="bob", response="s3cr3tvalue"',
    "Cookie: a=b; session=s3cr3tvalue",
    "s3cr3tvalue\n-----END RSA PRIVATE KEY-----\n",
    r"-----BEGIN PRIVATE KEY-----\ns3cr3tvalue\n-----END PRIVATE KEY-----\n",
    "[rank0]: -----BEGIN PRIVATE KEY-----\n[rank0]: s3cr3tvalue\n[rank0]: -----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_taken_out(text: str) -> None:
    found, count = without_secrets(text)
    assert "s3cr3tvalue" not in found
    assert count >= 1
    assert without_secrets(found) == (found, 0)


@pytest.mark.parametrize(
    "text", ["wandb login {}", "wandb.login('{}')", "WANDB_API_KEY={}", "env WANDB_API_KEY: {}"]
)
def test_a_key_of_weights_and_biases_is_known_by_where_it_stands(text: str) -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    assert key not in without_secrets(text.format(key))[0]
    assert without_secrets(f"commit {key}") == (f"commit {key}", 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(password=x1)", "(password=[removed])"),
        ("[password=x1]]", "[password=[removed]]]"),
        ("Authorization: Bearer x1x1x1x1", "Authorization: [removed]"),
        ("https://u:p@h/x?token=abc&step=3", "https://[removed]@h/x?token=[removed]&step=3"),
        ('{"token": "abc", "step": 3}', '{"token": "[removed]", "step": 3}'),
    ],
)
def test_a_place_is_replaced_and_counted_once(text: str, found: str) -> None:
    assert without_secrets(text) == (found, found.count(REMOVED))
    assert without_secrets(found) == (found, 0)


def test_an_unfinished_key_ends_where_its_lines_do() -> None:
    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
    text = f"{begin}\nAAAA\nBB==\nstep 3 of 4\nloss 0.5\n{begin}\nCCCC\n{end}\nstep 4 of 4"
    assert without_secrets(text) == ("[removed]\nstep 3 of 4\nloss 0.5\n[removed]\nstep 4 of 4", 2)


@pytest.mark.parametrize(
    "text",
    [
        "train.py --lr 0.1 --max-tokens=4096 --tokenizer gpt2",
        "tokens_per_second: 1234.5, num_tokens=77",
        "token_id=50256",
        "rank 2 is stuck in load_batch (train.py:8), data loading",
        "model.load_state_dict(torch.load(path))  # see https://pytorch.org/docs",
        "pad_token=None, token: 5",
        "file:///data/x.pt",
        "the password is wrong, password authentication failed for it",
        "forward pass: 0.3s, webhook-format=cloudevents",
        "docker run -p 8080:80 image",
        "export NCCL_DEBUG=INFO",
        "http://host:8080/a/@b",
        "Basic optimizer, Token embeddings",
        "token=<object at 0x7f> password=$PASSWORD",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == (text, 0)


def test_a_printed_environment_goes_but_what_explains_a_hang() -> None:
    text = "NCCL_DEBUG=INFO\nexport COMPANY_INTERNAL=x1\nRANK=3\nPATH=/usr/bin\nloss=0.3\n"
    redactor = a_redactor()
    assert redactor.log(text) == (
        "NCCL_DEBUG=INFO\nexport COMPANY_INTERNAL=[removed]\nRANK=3\nPATH=[removed]\nloss=0.3\n"
    )
    assert redactor.counted() == {"environment": 2}
    assert redactor.log("environ({'A': 'b'})") == "environ([removed])"


def test_users_are_called_otherwise_the_same_everywhere() -> None:
    redactor = a_redactor()
    assert redactor.text("/home/alice/train.py of alice, /home/bo/x, bo") == (
        "/home/user-1/train.py of user-1, /home/user-2/x, bo"
    )
    assert redactor.text("/data/people/carol/x.py") == "/home/user/x.py"
    assert redactor.text("malice, alice_lr, /root/x") == "malice, alice_lr, /root/x"
    assert redactor.text("mail alice@corp.example now") == "mail [e-mail] now"
    assert redactor.counted() == {"users": 5}


def test_hosts_and_addresses_are_called_otherwise_unless_they_are_wanted() -> None:
    text = "gpu-node-17: connect 10.1.2.3:29500 and fd00::17:29500 failed, 127.0.0.1 is fine, 10.1.2.3 again"
    assert a_redactor().text(text) == (
        "node-1: connect address-1:29500 and address-2:29500 failed, 127.0.0.1 is fine, address-1 again"
    )
    assert a_redactor(keep_hosts=True).text(text) == text


@pytest.mark.parametrize(
    "text", ["at 12:34:56.789", "torch 2.13.0", "step 1.2.3", "a::b::c", "vmlinux, vm_area"]
)
def test_what_only_looks_like_an_address_or_a_host_stays(text: str) -> None:
    assert a_redactor().text(text) == text


def test_a_known_secret_goes_wherever_it_stands() -> None:
    assert a_redactor("tok-123456789", "short").text("xtok-123456789y short") == "x[removed]y short"


def test_a_record_keeps_its_shape_and_its_fixed_words() -> None:
    record = {
        "run_id": "run-7",
        "command": ["train.py", "--token", "abcdef", "--user=alice", "--password=x9", "/home/alice/a"],
        "verdict": "RankNonCommHang",
        "state": "vm",
        "node": "vm",
        "api_key": "abcdef",
        "settings": {
            "webhook": {"value": "https://h/abc", "source": "flag"},
            "lr": {"value": 1, "source": ""},
        },
        "n": 1.5,
        "members": 18446744073709551615,
    }
    redactor = a_redactor()
    found = redacted(record, redactor)
    assert found == {
        **record,
        "command": [
            "train.py",
            "--token",
            "[removed]",
            "--user=user-1",
            "--password=[removed]",
            "/home/user-1/a",
        ],
        "node": "node-2",
        "api_key": "[removed]",
        "settings": {"webhook": {"value": "[removed]", "source": "flag"}, "lr": {"value": 1, "source": ""}},
    }
    assert redactor.counted() == {"hosts": 1, "secrets": 4, "users": 2}


def test_local_variables_go_but_the_peer_of_a_blocked_send() -> None:
    thread = {
        "variables": [
            {"frame": 0, "values": [["src", "3"], ["tensor", "tensor([1, 2])"], ["group", "None"]]},
            {"frame": 1, "values": [["password", "'x'"], ["dst", "'text'"]]},
        ]
    }
    redactor = a_redactor()
    assert redacted(thread, redactor) == {
        "variables": [{"frame": 0, "values": [["src", "3"], ["group", "None"]]}]
    }
    assert redactor.counted() == {"local variables": 3}


def test_a_log_is_redacted_line_by_line_and_a_key_as_a_whole() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----"
    log = f"step 1\n{key}\nHOME=/home/alice\nalice\n"
    found = a_redactor().log(log)
    assert "AAAA" not in found
    assert "BBBB" not in found
    assert found.splitlines() == ["step 1", "[removed]", "HOME=[removed]", "user-1"]


def test_settings_stay_unless_their_option_is_a_secret() -> None:
    options = [one for one in vars(table).values() if isinstance(one, Option)]
    assert {option.name for option in options if option.secret} == SECRET_SETTINGS
    settings: dict[str, dict[str, object]] = {
        option.name: {"value": "kept", "source": "flag"} for option in options
    }
    settings["new"] = {"value": "x", "source": "flag", "secret": True}
    found = redacted({"settings": settings}, a_redactor())
    assert isinstance(found, dict)
    told = found["settings"]
    named_so = {"token-file"}  # a path that explains no hang
    assert {name for name in told if told[name]["value"] != "kept"} == {*SECRET_SETTINGS, "new", *named_so}


def test_what_stands_below_a_secrets_name_goes_however_deep_it_is() -> None:
    record = {"credentials": {"a": ["x", {"b": "y"}]}, "password": 1234, "token": 5, "secret": ""}
    redactor = a_redactor()
    once = redacted(record, redactor)
    assert once == {
        "credentials": {"a": [REMOVED, {"b": REMOVED}]},
        "password": REMOVED,
        "token": 5,
        "secret": "",
    }
    assert redactor.counted() == {"secrets": 3}
    assert redacted(once, redactor) == once
    assert redactor.counted() == {}


@pytest.mark.parametrize(
    "words",
    [
        ["sshpass", "-p", "s3cr3t", "ssh", "h"],
        ["sshpass", "-ps3cr3t", "ssh", "h"],
        ["/usr/bin/curl", "-u", "bob:s3cr3t", "https://h"],
        ["curl", "--user=bob:s3cr3t", "https://h"],
        ["docker", "login", "-p", "s3cr3t"],
        ["train.py", "--pass", "s3cr3t"],
        ["wandb", "login", "s3cr3t7890123456789012345678901234567890"],
    ],
)
def test_a_command_line_in_words_has_no_secret(words: list[str]) -> None:
    assert "s3cr3t" not in str(redacted({"command": words}, a_redactor()))


def test_new_names_are_kept_by_who_has_them_already() -> None:
    assert numbered(["node-1", "zeta", "alpha"], "node") == {
        "node-1": "node-1",
        "alpha": "node-2",
        "zeta": "node-3",
    }


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9))),
    st.sampled_from(["", "[removed]", "a[removed]b"]),
)
def test_merged_spans_are_in_order_apart_and_cut_no_mark(places: list[tuple[int, int]], mark: str) -> None:
    text = f"0123456789{mark}0123456789{mark}0123456789"
    spans = merged(
        text, [Span(start, start + size, "x") for start, size in places if start + size < len(text)], "x"
    )
    assert all(one.end <= two.start for one, two in itertools.pairwise(spans))
    for found in re.finditer(re.escape("[removed]"), text):
        assert all(
            span.end <= found.start()
            or span.start >= found.end()
            or (span.start <= found.start() and span.end >= found.end())
            for span in spans
        )


PIECES = [
    *(
        "password",
        "token",
        '"api_key"',
        "api%5Fkey",
        "--pass",
        "-p",
        "-u",
        "curl",
        "mysql",
        "login",
        "machine",
    ),
    *("Authorization", "Bearer", "Cookie", "export", "MY_KEY", "NAME", "environ({", "})", "https://", "bob:"),
    *(
        "=",
        ":",
        "@",
        "/",
        " ",
        "\n",
        "\n  ",
        "\\",
        '"',
        "'",
        '\\"',
        "\\n",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "<",
        ">",
    ),
    *(
        ",",
        ";",
        "&",
        "?",
        "|",
        "%3D",
        "[removed]",
        "removed",
        "alice",
        "/home/alice",
        "10.1.2.3",
        "vm",
        "x1",
        "5",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "AAAA==", "hf_AAAAAAAAAAAAAAAAAAAAA", "$A"),
]
MIXED = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(MIXED)
@example("password=x1]")
@example("Authorization: Bearer x1] y1")
@example("password alice")
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redactor = a_redactor("known-secret")
    for redact in (redactor.text, redactor.log):
        once = redact(text)
        redactor.counted()
        assert redact(once) == once
        assert redactor.counted() == {}


VALUES = st.text(st.sampled_from("abzXY019@#!%^*_+~.-"), min_size=4, max_size=12).map("Q9".__add__)


@given(
    MIXED,
    st.sampled_from(
        [
            " password={} ",
            ' "token": "{}" ',
            r" {{\"token\":\"{}\"}} ",
            " https://bob:{}@host/p ",
            " --pass {} ",
            "\npassword:\n  {}\n",
            " Authorization: Bearer {}\n",
            "\nexport MY_VARIABLE={}\n",
            " token='{}",
        ]
    ),
    VALUES,
    MIXED,
)
def test_no_planted_secret_survives_whatever_stands_around_it(
    before: str, form: str, value: str, after: str
) -> None:
    if form.startswith(" https") and ("#" in value):
        value = value.replace("#", "-")
    assert value not in a_redactor().log(f"{before}\n{form.format(value)}\n{after}")


LONG = [
    *(
        "a",
        "a.",
        "a=",
        "password",
        "password=",
        "password='",
        "password=[",
        "password:\n  ",
        "password ",
        '\\"',
    ),
    *(
        "token='<token=\"<",
        "://",
        "://a",
        "://@",
        "a://b:c",
        "?key=",
        "%3D",
        "token%3D",
        "-eyJ",
        "eyJaaaaaaaaa.",
        "sk-",
    ),
    *(
        "hf_",
        "--pass ",
        "--a ",
        "curl ",
        "curl -u ",
        "mysql -p",
        "wandb login ",
        "environ({",
        "environ({'",
        "export A=",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "AAAA\n",
        "Bearer ",
        "a@",
        "1:",
        "1.",
        "/home/",
        " ",
        "\n",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----\n",
        "\n \n",
        "login a ",
        "[removed]",
        "\\",
        "'",
        "A=\n",
        "wandb login --a ",
    ),
]


DRAW = random.Random(8)
TOGETHER = ["".join(DRAW.choices(LONG, k=2 + number % 3)) for number in range(30)]


@pytest.mark.parametrize("piece", [*LONG, *TOGETHER])
def test_time_grows_with_the_length_of_a_text_and_no_faster(piece: str) -> None:
    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        taken: list[float] = []
        for _ in range(2):
            began = time.thread_time()
            a_redactor().log(text)
            taken.append(time.thread_time() - began)
        return min(taken)

    # Eight times the text: 8 times the time when it is linear, 64 times when it is not.
    assert seconds(40_000) < 28 * seconds(5_000) + 0.02
