"""torch's NUMA binding for a worker in a process context of its own, where torch takes it for local rank 0.

torch binds a process to the CPUs beside the GPU of its local rank, and does so inside the process context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch.numa import binding


def bound_command(command: tuple[str, ...], options: binding.NumaOptions, *, gpu: int) -> tuple[str, ...]:
    """The command that runs ``command`` on the CPUs beside a GPU."""
    bound: tuple[str, ...] = binding._maybe_wrap_command_args_with_numa_binding(  # noqa: SLF001
        command, gpu_index=gpu, numa_options=options
    )
    return bound


class BoundFunction:
    """A picklable stand-in for a worker function: binds its process first, then calls it."""

    def __init__(self, function: Callable[..., object], options: binding.NumaOptions, *, gpu: int) -> None:
        """Wrap ``function``; a callable without a name gets that of its type."""
        self._function = function
        self._options = options
        self._gpu = gpu
        self.__name__ = self.__qualname__ = type(function).__name__
        functools.update_wrapper(self, function)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Bind, then run."""
        bound = binding._maybe_wrap_with_numa_binding(  # noqa: SLF001
            self._function, gpu_index=self._gpu, numa_options=self._options
        )
        return bound(*args, **kwargs)
