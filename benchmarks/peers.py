"""Programs of others that are measured beside ours: each from PyPI, in an environment of its own.

Made once below ``build/peers``; without a package index there is none, and the row says so. Nothing of them
comes into our environment, and nothing is executed at installation beyond what pip does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent.parent / "build" / "peers"
_TIMEOUT: Final = 120.0


def peer_python(requirement: str) -> Path | None:
    """The interpreter of an environment that has a package, without what the package asks for.

    Args:
        requirement: name and exact version, ``name==1.0``.

    Returns:
        ``None`` when it cannot be had; why is said on stderr.
    """
    folder = _FOLDER / requirement
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists() and python.exists():
        return python
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", requirement]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], [str(python), *install]):
            subprocess.run(command, check=True, timeout=_TIMEOUT, stdout=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"bench: {requirement} cannot be had: {error}\n")
        return None
    ready.touch()
    return python
