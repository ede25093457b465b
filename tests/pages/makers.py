"""Which part of the documentation is made by what, and which picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.pages import api, codes, diagrams, houses, one_hang, policy_summary, protocol, rules
from tests.pages.parts import Maker

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PARTS: Final[Mapping[str, Maker]] = {
    "agent-rooms": houses.agent_rooms,
    "exit-codes": codes.render,
    "nodes-keys": protocol.keys,
    "nodes-waits": protocol.waits,
    "one-hang": one_hang.render,
    "policy-of-hangs": policy_summary.render,
    "python-names": api.render,
    "rules-in-order": rules.render,
    "verbs": houses.verbs,
}
PICTURES: Final[Mapping[str, Maker]] = {
    "how-it-works/detector.svg": diagrams.detector_picture,
    "how-it-works/nodes.svg": diagrams.nodes_picture,
    "how-it-works/stages.svg": diagrams.stage_picture,
}
