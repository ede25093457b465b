"""Python runs this at start when the agent put its folder first on PYTHONPATH.

It starts the probe if the process is a rank, and makes way: it leaves ``sys.path``, and whoever imports
``sitecustomize`` gets the user's own, or the usual ImportError when there is none. It must be cheap, must not
fail, and must load under Pythons that the probe itself does not support, so it imports nothing that
the interpreter has not loaded yet.
"""

import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
_OLDEST = (3, 10)


def _is_rank() -> bool:
    environ = os.environ
    own = str(os.getpid())
    return (
        ("RANK" in environ or "RANKSCOPE_TASK" in environ)  # a rank below a launcher may have none of torch's
        and "RANKSCOPE_PAGE" in environ
        and "RANKSCOPE_SLOT" in environ
        and environ.get("RANKSCOPE_PROBE") != "0"
        and environ.get("RANKSCOPE_RANK_PID", own) == own
    )


def _start_probe() -> None:
    if sys.version_info[:2] < _OLDEST:
        _say(f"the probe needs Python 3.10, this is {sys.version_info[0]}.{sys.version_info[1]}")
        return
    try:
        try:
            from rankscope.watchdog.probe.boot import boot
        except ImportError:
            # The worker's environment is not the agent's: use the code beside this file, and last on the
            # path, because its folder may be the site-packages of that other environment.
            root = _HERE.rsplit(os.sep, 4)[0]
            sys.path.append(root)
            try:
                from rankscope.watchdog.probe.boot import boot
            finally:
                sys.path.remove(root)
        boot(os.environ)
    except Exception as error:  # noqa: BLE001 - the edge to the user's process
        _say(f"the probe cannot be loaded ({error})")


def _say(what: str) -> None:
    try:  # noqa: SIM105 - contextlib is not loaded yet
        os.write(2, f"rankscope: {what}; training runs without progress reports\n".encode())
    except OSError:
        pass


def _make_way() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    if spec.loader is not None:
        spec.loader.exec_module(module)


try:
    _make_way()
finally:
    # Last: the user's own sitecustomize may set an excepthook, which the probe then calls.
    if _is_rank():
        _start_probe()
