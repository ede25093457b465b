"""The catalogue of frames: reading it, asking it, adding to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.classify_factory import SITE, native, stdlib, torch_frame, user

from rankscope.diag.catalogue_page import LABEL_MEANINGS, render_page
from rankscope.diag.classify import Catalogue, load_catalogue
from rankscope.diag.classify.catalogue import packaged_text
from rankscope.diag.classify.catalogue_text import LABELS, TABLES, headings, read_catalogue_text
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
        (native("pncclCommInitRankConfig"), "startup"),
        (native("ncclCommSplit"), "startup"),
        (native("c10d::NCCLComm::create(int, int, ncclUniqueId, signed char)"), "startup"),
        (native("c10d::ProcessGroupNCCL::initNCCLComm(std::string const&, c10d::OpType)"), "startup"),
        (native("c10d::ProcessGroupNCCL::recv(std::vector<at::Tensor>&, int, int)"), "p2p"),
        (native("c10d::ops::(anonymous namespace)::send_CUDA(c10::ArrayRef<at::Tensor>)"), "p2p"),
        (native("c10d::ProcessGroupGloo::allreduce"), "collective"),
        (native("c10d::ProcessGroupNCCL::_allgather_base(at::Tensor&, at::Tensor&)"), "collective"),
        (native("c10d::ops::(anonymous namespace)::barrierCUDA()"), "collective"),
        (native("pncclAllReduce"), "collective"),
        (native("hipStreamSynchronize"), "gpu_wait"),
        (native("c10d::ProcessGroupNCCL::watchdogHandler()"), None),
        (native("c10d::ProcessGroupNCCL::heartbeatMonitor()"), None),
        (torch_frame("partition_grads", "deepspeed/runtime/zero/stage3.py"), "gpu_wait"),
        (torch_frame("CompiledKernel._init_handles", "triton/compiler/compiler.py"), "compile"),
        (torch_frame("Run._atexit_cleanup", "wandb/sdk/wandb_run.py"), "exit"),
        (
            torch_frame("safetensors_weights_iterator", "sglang/srt/model_loader/weight_utils.py"),
            "checkpoint",
        ),
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
        ("pyarrow/parquet/core.py", False),
        ("multiprocess/pool.py", False),
        ("/workspace/timm/train.py", True),
        ("streaming/loop.py", True),
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


@pytest.mark.parametrize("path", [SITE + "mine", SITE + "mine/"])
def test_an_installed_package_can_be_declared_the_user_s_own(path: str) -> None:
    mine = load_catalogue().with_user_code([path])
    assert mine.is_user_code(Frame("f", SITE + "mine/loop.py", 1))
    assert not mine.is_user_code(Frame("f", SITE + "torch/loop.py", 1))
    assert not mine.is_user_code(Frame("f", SITE + "mine_too/loop.py", 1))


def test_a_declared_package_is_known_in_dumps_that_leave_its_folder_out() -> None:
    mine = load_catalogue().with_user_code([SITE + "transformers"])
    assert mine.is_user_code(Frame("f", "transformers/trainer.py", 1))
    assert not load_catalogue().is_user_code(Frame("f", "transformers/trainer.py", 1))


def test_a_declared_path_is_taken_literally_and_may_be_one_file() -> None:
    mine = load_catalogue().with_user_code([SITE + "odd[1]/loop.py"])
    assert mine.is_user_code(Frame("f", SITE + "odd[1]/loop.py", 1))
    assert not mine.is_user_code(Frame("f", SITE + "odd1/loop.py", 1))


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
    ("text", "told"),
    [
        ("not toml", "mine.toml:1: no TOML: expected '=' after a key in a key/value pair"),
        (
            '[[frames]]\nlabel = "colective"\nfunctions = ["f"]',
            "mine.toml:2: there is no label 'colective'; did you mean collective?",
        ),
        (
            '[[frames]]\nlabel = "lock"\nfunktions = ["f"]\nfunctions = ["f"]',
            "mine.toml:3: [[frames]] has no key 'funktions'; did you mean functions?",
        ),
        ('\n[[frames]]\nfunctions = ["f"]', "mine.toml:2: [[frames]] without label; add a line label = ..."),
        (
            '[[frames]]\nlabel = "lock"\n\nfunctions = "f"',
            "mine.toml:4: [[frames]] functions: expected a list, got a text; write a list of texts",
        ),
        (
            '[[frames]]\nlabel = "lock"\nfunctions = ["f", 3]',
            "mine.toml:3: [[frames]] functions: expected a text, got a number; write a list of texts",
        ),
        ('[[frames]]\nlabel = "lock"\nfunctions = ["*"]', "mine.toml:3: [[frames]] matches every frame;"),
        ('[[hints]]\nlabel = "lock"', "mine.toml:1: [[hints]] matches nothing; name what it is for in"),
        ('[[source]]\nlabel = "lock"\npattern = "("', "mine.toml:3: '(' is no regular expression: missing"),
        ('[sleep]\nlines = ["("]', "mine.toml:2: '(' is no regular expression: missing"),
        ("[surprise]\nx = 1", "mine.toml:1: there is no table 'surprise'; use one of frames, hints, source"),
        ('[[frame]]\nlabel = "lock"', "mine.toml:1: there is no table 'frame'; did you mean frames?"),
        ("schema = 7", "mine.toml:1: schema 7 is not known; this version reads schema = 1"),
        ("frames = 3", "mine.toml:1: frames is no table; begin an entry with [[frames]]"),
    ],
)
def test_each_mistake_says_where_what_and_what_to_do(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Catalogue.parse(text, name="mine.toml")
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once_and_what_is_right_counts() -> None:
    text = """
[[frames]]  # wrong
label = "nonsense"
functions = ["f"]

[[frames]]
label = "checkpoint"
functions = ["flush_shards"]
files = ["acme/io.py"]

[[hints]]
label = "data_loading"
functionz = ["*next*"]
"""
    catalogue, mistakes = Catalogue.read(text)
    assert [mistake.line for mistake in mistakes] == [3, 13]
    assert catalogue.label(torch_frame("flush_shards", "acme/io.py")) == "checkpoint"
    with pytest.raises(UsageError) as caught:
        Catalogue.parse(text, name="mine.toml")
    assert len(str(caught.value).splitlines()) == 2


def test_a_heading_inside_of_a_quoted_text_moves_no_line_numbers() -> None:
    quoted = "[[source]]\nlabel = 'lock'\npattern = '''\n[source]\n'''\n"
    text = quoted + "[[source]]\nlabel = 'nil'\npattern = 'x'\n"
    _, mistakes = Catalogue.read(text)
    assert [mistake.line for mistake in mistakes] == [7]


@given(st.text())
def test_no_text_makes_the_reader_raise(text: str) -> None:
    Catalogue.read(text)


def test_the_packaged_catalogue_is_read_once() -> None:
    assert load_catalogue() is load_catalogue() is Catalogue.load()


def test_every_packaged_entry_says_where_it_was_seen() -> None:
    text = packaged_text()
    places = headings(text)
    document = read_catalogue_text(text).document
    assert len(places) == sum(len(getattr(document, table)) for table in TABLES)
    assert [f"{place.table}, line {place.line}" for place in places if len(place.comment) < 10] == []


def test_every_label_is_explained() -> None:
    assert set(LABEL_MEANINGS) == set(LABELS)


def test_the_documented_catalogue_is_the_packaged_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "catalogue.md").read_text()
    assert page == render_page(packaged_text()), "stale: make docs writes it anew"


def test_a_number_too_long_for_python_is_one_mistake() -> None:
    assert len(read_catalogue_text(f"a = {'9' * 5000}").mistakes) == 1


@pytest.mark.parametrize(
    ("function", "file", "line", "own"),
    [
        ("<module>", "<string>", 1, False),  # `python -c` of a spawned process
        ("<module>", "<stdin>", 1, False),
        ("<module>", "<stdin>", 12, True),  # a script that the interpreter was given
        ("train", "<string>", 1, True),
    ],
)
def test_the_one_line_that_begins_a_spawned_process_is_nobodys_own(
    function: str, file: str, line: int, own: bool
) -> None:
    assert load_catalogue().is_user_code(Frame(function, file, line)) is own


def test_what_every_wait_passes_through_tells_nothing() -> None:
    catalogue = load_catalogue()
    assert catalogue.is_plumbing(stdlib("Condition.wait", "threading.py"))
    assert catalogue.is_plumbing(Frame("<module>", "<frozen runpy>", 88))
    assert not catalogue.is_plumbing(torch_frame("_wait", "wandb/sdk/lib/mailbox.py"))
    assert not catalogue.is_plumbing(user("wait", 3))


def test_an_entry_about_libraries_needs_its_paths() -> None:
    _, mistakes = Catalogue.read("[[library]]\npaths = []\nplumbing = true\n")
    assert [one.what for one in mistakes] == ["[[library]] matches nothing"]
