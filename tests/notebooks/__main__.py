"""``make notebooks``: run the notebooks on the recorded jobs, and write them with what came out."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.notebooks.execute import FOLDER, NAMES, executed, write
from tests.notebooks.pictures import add_pictures


def main(names: Sequence[str]) -> int:
    """Run notebooks, all by default."""
    for name in names or NAMES:
        notebook = executed(name)
        add_pictures(notebook)
        notebook["metadata"]["language_info"] = {"name": "python"}
        path = FOLDER / f"{name}.ipynb"
        write(notebook, path)
        print(f"{path}: {path.stat().st_size} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
