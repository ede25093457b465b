"""A worker without torch: writes its environment to ``FOLDER/<rank>.json`` and two lines to each stream."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
(folder / f"{os.environ['RANK']}.json").write_text(json.dumps(dict(os.environ)))
for stream in (sys.stdout, sys.stderr):
    print("loss is 7", file=stream, flush=True)
    print("a word of something else", file=stream, flush=True)
