"""An environment may hold anything: reading a rank out of it never raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.discover.rank_variables import identify

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "TF_CONFIG")
TEXTS = st.text() | st.integers().map(str) | st.just("9" * 5000) | st.just('{"task": {"index": 1}}')


@given(st.dictionaries(st.sampled_from(NAMES), TEXTS))
def test_any_environment_gives_a_rank_or_none(environment: dict[str, str]) -> None:
    identity = identify(environment)
    if identity is not None:
        assert identity.rank >= 0
        assert identity.source in NAMES


@given(st.binary(max_size=200))
def test_any_tensorflow_configuration_gives_a_rank_or_none(config: bytes) -> None:
    identity = identify({"TF_CONFIG": config.decode("utf-8", "surrogateescape")})
    assert identity is None or identity.rank >= 0


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_rank_is_read_as_it_was_written(rank: int, size: int) -> None:
    identity = identify({"RANK": str(rank), "WORLD_SIZE": str(size)})
    assert identity is not None
    assert (identity.rank, identity.world_size) == (rank, size)
