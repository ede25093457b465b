"""The name of an MPI call, read from the frame of its entry: C++ frames alone may show it.

Other transports have a Python frame that names the call; MPI is called from C, and mpi4py's methods are C as
well. Ranks in different calls can only be told apart by these names. It knows one frame and judges nothing.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.merge.normalise import bare_function, portable_file
from rankscope.diag.model import Frame

MPI: Final = "MPI_"
_ENTRY: Final = re.compile(r"P?MPI_([A-Z][a-z]\w*?)(?:_c)?")
"""The entries of the library and those for profilers; ``_c`` takes large counts (MPI 4.0, section 2.5.8)."""
_CYTHON: Final = re.compile(r"__pyx_p[fw]_6mpi4py_3MPI_\d+(?:Intra|Inter)?[Cc]omm_\d+(\w+)")
"""mpi4py's methods, as Cython names their C functions (mlcommons/storage#172)."""
_METHOD: Final = re.compile(r"[A-Za-z][a-z]+(?:_[a-z]+)*")


def mpi_call(frame: Frame) -> str:
    """``MPI_Allreduce`` of ``PMPI_Allreduce`` and of mpi4py's ``allreduce``; ``""`` for any other frame."""
    name = bare_function(frame.function)
    if frame.kind == "native":
        found = _ENTRY.fullmatch(name) or _CYTHON.match(name)
        return _spelled(found[1]) if found else ""
    if "mpi4py/" in portable_file(frame.file) and _METHOD.fullmatch(name):
        return _spelled(name)
    return ""


def _spelled(name: str) -> str:
    return f"{MPI}{name[0].upper()}{name[1:].lower()}"
