"""Who may ask the API: tokens, cookies, names of hosts, origins; and how often."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.agent.health.api.access import Access, is_our_host, is_own_page
from rankscope.agent.health.api.token import TokenError, is_token, job_token, read_token
from rankscope.agent.health.offer import ApiOffer, OfferReader, remove_offer, write_offer
from rankscope.agent.health.rates import PEERS, Buckets, peer_of, whole_seconds

TOKEN = "a-token-of-this-job-0123456789"


def test_only_the_token_itself_is_a_bearer() -> None:
    access = Access(TOKEN)
    assert access.is_bearer(f"Bearer {TOKEN}")
    assert access.is_bearer(f"bearer  {TOKEN} ")
    for wrong in (
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é\udc80",
    ):
        assert not access.is_bearer(wrong)


@given(st.text(max_size=80))
def test_no_other_text_is_a_token(text: str) -> None:
    access = Access(TOKEN)
    assert access.is_token(text) == (text == TOKEN)
    assert access.has_cookie({access.cookie_name: text}) == (text == access.cookie_value)


def test_a_cookie_is_not_the_token_and_cannot_be_a_bearer() -> None:
    access, other = Access(TOKEN), Access(TOKEN + "2")
    assert TOKEN not in access.cookie_value + access.cookie_name
    assert access.has_cookie({access.cookie_name: access.cookie_value})
    assert not access.is_bearer(f"Bearer {access.cookie_value}")
    assert not other.has_cookie({access.cookie_name: access.cookie_value})
    assert access.cookie_name != other.cookie_name


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8765", "127.0.0.1", "localhost:1", "LOCALHOST", "job.localhost:80", "[::1]:8765",
     "10.0.0.7:1", "host-a", "Host-A.:8765", "127.5.5.5", "[0:0:0:0:0:0:0:1]"],
)  # fmt: skip
def test_this_hosts_names_and_addresses_are_ours(host: str) -> None:
    assert is_our_host(host, ("host-a", "10.0.0.7"))


@pytest.mark.parametrize(
    "host",
    ["", "attacker.example", "attacker.example:8765", "localhost.attacker.example", "10.0.0.8",
     "127.0.0.1.nip.io", "localhost@attacker.example", "localhost:x", "localhost:8765/x", "[::1", "[::2]",
     "host-a.attacker.example", "localhost, attacker.example", "2130706433", "x" * 5000],
)  # fmt: skip
def test_other_names_are_not_ours(host: str) -> None:
    assert not is_our_host(host, ("host-a", "10.0.0.7"))


@given(st.text(max_size=60))
def test_no_header_makes_the_check_raise(text: str) -> None:
    is_our_host(text, ("host-a",))
    is_own_page({"Origin": text, "Host": text, "Sec-Fetch-Site": text}, writes=True)


def test_a_cookie_counts_only_from_the_own_page() -> None:
    host = {"Host": "127.0.0.1:8765"}
    assert is_own_page(host, writes=False)
    assert is_own_page(host | {"Sec-Fetch-Site": "same-origin"}, writes=False)
    assert is_own_page(host | {"Sec-Fetch-Site": "none"}, writes=False)
    assert not is_own_page(host | {"Sec-Fetch-Site": "same-site"}, writes=False)
    assert not is_own_page(host | {"Sec-Fetch-Site": "cross-site"}, writes=False)
    assert is_own_page(host | {"Origin": "http://127.0.0.1:8765"}, writes=True)
    for origin in ("http://127.0.0.1:9999", "null", "http://attacker.example", "", "file://", "http://[::1"):
        assert not is_own_page(host | {"Origin": origin}, writes=True)
    assert not is_own_page(host, writes=True)  # a browser tells the origin of whatever changes something


# The token's file.


def test_the_first_agent_makes_a_token_that_only_its_user_can_read_and_the_next_one_finds_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run-7" / "token"
    token = job_token(path)
    assert is_token(token)
    assert len(token) >= 43  # 256 bits
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert job_token(path) == token
    assert [each.name for each in path.parent.iterdir()] == ["token"]
    assert job_token(tmp_path / "run-8" / "token") != token


def test_a_token_that_others_could_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    job_token(path)
    path.chmod(0o640)
    with pytest.raises(TokenError, match="others may read") as refused:
        job_token(path)
    assert "remove" in refused.value.hint


def test_a_token_behind_a_link_is_refused(tmp_path: Path) -> None:
    job_token(tmp_path / "elsewhere")
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenError):
        job_token(tmp_path / "token")


@pytest.mark.parametrize("content", ["", "short", "with a space in it 0123", "x" * 600, "é" * 20])
def test_what_cannot_be_a_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    given_file = tmp_path / "mounted"
    given_file.write_text(content)
    with pytest.raises(TokenError) as refused:
        job_token(tmp_path / "token", given=given_file)
    assert not content or content not in str(refused.value)
    assert not (tmp_path / "token").exists()


def test_a_file_that_the_user_names_counts_whatever_its_mode(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.write_text(TOKEN + "\n")
    mounted.chmod(0o644)
    assert job_token(tmp_path / "token", given=mounted) == TOKEN
    assert read_token(mounted) == TOKEN
    with pytest.raises(TokenError, match="no file"):
        job_token(tmp_path / "token", given=tmp_path / "missing")


def test_an_offer_is_private_comes_late_and_changes(tmp_path: Path) -> None:
    path = tmp_path / "status.api"
    reader = OfferReader(path)
    assert reader.read() is None
    offer = ApiOffer("/jobs/run-7", "vm", TOKEN)
    write_offer(path, offer)
    assert reader.read() == offer
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_offer(path, ApiOffer("/jobs/run-7", "vm", TOKEN + "2"))
    assert (found := reader.read()) is not None
    assert found.token == TOKEN + "2"
    assert TOKEN not in repr(found)
    path.write_text("torn")
    assert reader.read() is None
    remove_offer(path)
    assert reader.read() is None


# Rates.


def test_a_peer_has_its_burst_and_then_its_rate() -> None:
    buckets = Buckets(rate=10, burst=3)
    assert [buckets.take("a", 100.0) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a", 100.0) == pytest.approx(0.1)
    assert buckets.take("b", 100.0) == 0
    assert buckets.take("a", 100.2) == 0
    assert buckets.take("a", 90.0) == 0  # what was left; a clock that went back gives nothing
    assert buckets.take("a", 90.0) > 0
    assert [buckets.take("a", 1000.0) for _ in range(4)][3] > 0
    assert whole_seconds(0.1) == 1


def test_peers_are_bounded_and_a_network_of_ipv6_is_one() -> None:
    buckets = Buckets(rate=1, burst=1)
    for number in range(PEERS + 10):
        buckets.take(str(number), 0.0)
    assert len(buckets._peers) == PEERS
    assert peer_of("2001:db8::1") == peer_of("2001:db8::ffff:2") != peer_of("2001:db8:0:1::1")
    assert peer_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert peer_of("fe80::1%eth0") == "fe80::"
    assert peer_of("") == ""
