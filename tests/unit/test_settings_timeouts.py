"""The process group's timeout against the hang interval: AIMaster's advice as one line at the start."""

from __future__ import annotations

import pytest
from tests.settings_factory import settings

from rankscope.agent.settings.group_timeouts import ENOUGH, GLOO, NCCL


@pytest.mark.parametrize(
    ("interval", "has_gpu", "timeout"),
    [
        (NCCL - ENOUGH, True, None),
        (NCCL - ENOUGH + 1, True, "600 s (NCCL's default)"),
        (NCCL - ENOUGH + 1, False, None),
        (GLOO - ENOUGH, False, None),
        (GLOO, False, "1800 s (gloo's default)"),
        (1200, True, "600 s (NCCL's default)"),
    ],
)
def test_a_timeout_must_exceed_the_interval(interval: float, has_gpu: bool, timeout: str | None) -> None:
    notes = settings(f"--job-hang-interval={interval}", has_gpu=has_gpu).notes
    if timeout is None:
        assert notes == ()
        return
    (note,) = notes
    assert note.startswith(
        f"a process group gives up after {timeout}, which should be 150-200 s more than the "
    )
    assert f"interval of {interval:g} s (--job-hang-interval)" in note
    assert note.endswith(f"init_process_group(timeout=timedelta(seconds={interval + 200:g}))")


def test_auto_is_silent_and_so_is_a_job_that_is_not_watched() -> None:
    assert settings(has_gpu=True).notes == ()
    assert settings("--job-hang-interval=auto", has_gpu=True).notes == ()
    notes = settings("--job-execution-mode=Async", "--job-hang-interval=1800", has_gpu=True).notes
    assert not any("process group" in note for note in notes)


@pytest.mark.parametrize(
    ("script", "environ", "told"),
    [
        (("train.py", "--ddp_timeout", "7200"), {}, None),
        (("train.py", "--ddp-timeout=1250"), {}, "1250 s (--ddp-timeout)"),
        (("train.py", "--distributed-timeout-minutes", "20"), {}, "1200 s (--distributed-timeout-minutes)"),
        (("train.py", "--distributed-timeout-minutes", "30"), {}, None),
        (("train.py", "--comm.train_timeout_seconds", "100"), {}, "100 s (--comm.train_timeout_seconds)"),
        (("train.py", "--ddp_timeout"), {}, "600 s (NCCL's default)"),
        (("train.py", "--ddp_timeout", "long"), {}, "600 s (NCCL's default)"),
        (("train.py",), {"DEEPSPEED_TIMEOUT": "60"}, None),
        (("train.py",), {"DEEPSPEED_TIMEOUT": "5"}, "300 s (DEEPSPEED_TIMEOUT)"),
        (("train.py",), {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, None),
        (("train.py",), {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, "600 s (NCCL's default)"),
    ],
)
def test_what_the_user_set_counts_where_it_is_known(
    script: tuple[str, ...], environ: dict[str, str], told: str | None
) -> None:
    notes = settings("--job-hang-interval=1200", script=script, environ=environ, has_gpu=True).notes
    if told is None:
        assert notes == ()
    else:
        assert notes[0].startswith(f"a process group gives up after {told}, ")


def test_limits_from_c4d_and_aimaster_are_named() -> None:
    (note,) = settings("--c4d-common-envs=C4D_HANG_TIMEOUT=100", has_gpu=False).notes
    assert "interval of 1800 s (--c4d-common-envs C4D_HANG_TIMEOUT x C4D_HANG_TIMES)" in note
    (note,) = settings("--aimaster-args=--enable-job-hang-detection=True", has_gpu=False).notes
    assert "interval of 1800 s (AIMaster's default)" in note
