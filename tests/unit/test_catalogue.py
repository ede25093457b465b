"""The catalogue of frames: reading it, asking it, adding to it."""

from __future__ import annotations

import pytest
from tests.classify_factory import native, stdlib, torch_frame, user

from rankscope.diag.classify import Catalogue, load_catalogue
from rankscope.diag.errors import UsageError
from rankscope.diag.model import Frame, ThreadStack


@pytest.mark.parametrize(
    ("frame", "label"),
    [
        (torch_frame("all_reduce", "torch/distributed/distributed_c10d.py"), "collective"),
        (torch_frame("all_gather_single", "torch/distributed/distributed_c10d.py"), "collective"),
        (torch_frame("batch_isend_irecv", "torch/distributed/distributed_c10d.py"), "p2p"),
        (
            torch_frame("AsyncCollectiveTensor.trigger_wait", "torch/distributed/_functional_collectives.py"),
            "collective",
        ),
        (torch_frame("init_process_group", "torch/distributed/distributed_c10d.py"), "startup"),
        (torch_frame("_engine_run_backward", "torch/autograd/graph.py"), "backward"),
        (
            torch_frame("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py"),
            "loader_wait",
        ),
        (torch_frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py"), "data_loading"),
        (torch_frame("_save", "torch/serialization.py"), "checkpoint"),
        (torch_frame("FileBaton.wait", "torch/utils/file_baton.py"), "compile"),
        (stdlib("_shutdown", "threading.py"), "exit"),
        (stdlib("Popen._try_wait", "subprocess.py"), "child_process"),
        (native("c10d::Work::wait(std::chrono::duration<long>)"), "collective"),
        (native("c10d::TCPStore::doWait"), "store_wait"),
        (native("c10d::TCPStore::waitForWorkers"), "startup"),
        (native("pybind11::cpp_function::initialize<bool, c10d::Work, long>"), None),
        (user("all_reduce", 3), None),
        (torch_frame("DisableContext.__call__.<locals>._fn", "torch/_dynamo/eval_frame.py"), None),
    ],
)
def test_frames_seen_in_real_stacks_carry_their_label(frame: Frame, label: str | None) -> None:
    assert load_catalogue().label(frame) == label


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/workspace/train.py", True),
        ("train.py", True),
        ("/home/me/torch_project/loop.py", True),
        ("<string>", True),
        ("/opt/v/lib/python3.11/site-packages/torch/serialization.py", False),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", False),
        ("/usr/local/lib/python3.11/threading.py", False),
        ("torch/distributed/distributed_c10d.py", False),
        ("threading.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("", False),
    ],
)
def test_the_user_s_own_code_is_told_from_libraries(file: str, own: bool) -> None:
    assert load_catalogue().is_user_code(Frame("f", file, 1)) is own


def test_a_native_frame_is_never_the_user_s_own() -> None:
    assert not load_catalogue().is_user_code(Frame("f", "/workspace/ext.so", 0, "native"))


def test_a_path_can_be_declared_the_user_s_own() -> None:
    mine = load_catalogue().with_user_code(["/opt/v/lib/python3.11/site-packages/mine"])
    assert mine.is_user_code(Frame("f", "/opt/v/lib/python3.11/site-packages/mine/loop.py", 1))
    assert not mine.is_user_code(Frame("f", "/opt/v/lib/python3.11/site-packages/torch/loop.py", 1))


@pytest.mark.parametrize(
    ("text", "wchan", "label"),
    [
        ("w.wait()", "futex_do_wait", "collective"),
        ("[r.wait() for r in reqs]", "futex_do_wait", "collective"),
        ("w.wait()", None, "collective"),
        ("w.wait()", "do_wait", None),
        ('st.get("done")', "poll_schedule_timeout.constprop.0", "store_wait"),
        ('settings.get("done")', "hrtimer_nanosleep", None),
        ('settings.get("done")', None, None),
        ("while not work.is_completed():", "", "collective"),
        ("self.lock.acquire()", "futex_do_wait", "lock"),
        ("with self._lock:", None, "lock"),
        ("with L:", "futex_do_wait", "lock"),
        ("with L:", None, None),
        ("data = open(path).read()", "wait_for_partner", "storage"),
        ("os.waitpid(pid, 0)", "do_wait", "child_process"),
        ("time.sleep(3600)", "hrtimer_nanosleep", "pause"),
        ("", "futex_do_wait", None),
        (None, "futex_do_wait", None),
    ],
)
def test_a_user_s_line_tells_what_its_c_call_waits_for(
    text: str | None, wchan: str | None, label: str | None
) -> None:
    assert load_catalogue().source_label(text, wchan) == label


@pytest.mark.parametrize(
    "word",
    ["load_batch", "SlowSet.__getitem__", "read_remote_shard", "my_collate_fn", "MyDataset.fetch_dataset"],
)
def test_words_of_users_names_hint_at_data_loading(word: str) -> None:
    assert load_catalogue().hint(user(word, 1), with_file=False) == "data_loading"


def test_a_file_name_hints_only_where_it_is_asked_for() -> None:
    frame = user("decode", 3, "/workspace/my_dataset.py")
    assert load_catalogue().hint(frame, with_file=True) == "data_loading"
    assert load_catalogue().hint(frame, with_file=False) is None


def test_auxiliary_threads_are_known_by_name_or_frame_and_never_the_main_one() -> None:
    catalogue = load_catalogue()
    feed = (stdlib("Queue._feed", "multiprocessing/queues.py"), stdlib("Thread.run", "threading.py"))
    assert catalogue.is_auxiliary(ThreadStack(2, "QueueFeederThread", (user("f", 1),)))
    assert catalogue.is_auxiliary(ThreadStack(2, None, feed))
    assert catalogue.is_auxiliary(ThreadStack(2, None, ()))
    assert not catalogue.is_auxiliary(ThreadStack(2, None, feed, is_main=True))
    assert not catalogue.is_auxiliary(ThreadStack(2, "CheckpointWriter", (user("holder", 77),)))


def test_a_user_s_catalogue_is_asked_first() -> None:
    text = '[[frames]]\nlabel = "collective"\nfiles = ["acme/comm.py"]\nfunctions = ["sync_*"]\n'
    merged = load_catalogue().merge(Catalogue.parse(text))
    assert merged.label(torch_frame("sync_grads", "acme/comm.py")) == "collective"
    assert merged.label(torch_frame("all_reduce", "torch/distributed/distributed_c10d.py")) == "collective"
    assert load_catalogue().label(torch_frame("sync_grads", "acme/comm.py")) is None


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        '[[frames]]\nlabel = "nonsense"\nfunctions = ["f"]',
        '[[frames]]\nlabel = "lock"\nfunktions = ["f"]',
        '[[source]]\nlabel = "lock"\npattern = "("',
        "[surprise]\nx = 1",
    ],
)
def test_a_wrong_catalogue_gives_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError, match="catalogue: ") as caught:
        Catalogue.parse(text)
    assert caught.value.hint


def test_the_packaged_catalogue_is_read_once() -> None:
    assert load_catalogue() is load_catalogue() is Catalogue.load()
