"""Which node is to blame, and whether it may leave the job. Pure, and careful: a healthy node is dear.

Only a hang whose culprits are certain and lie on one node counts: an ``error`` verdict (the communication
layer), or a rank that cannot run. It must not know how a node leaves.
"""

from __future__ import annotations

from typing import Final

from rankscope.agent.policy.situation import Rules
from rankscope.diag.model import Diagnosis

_HANGS: Final = ("RankCommHang", "RankNonCommHang")
_FROZEN_RULE: Final = "2"
_BLOCKED: Final = "state D ("
"""How that rule (``diag.classify.frozen``) tells uninterruptible sleep in its evidence."""


def blocked_ranks(diagnosis: Diagnosis | None) -> tuple[int, ...]:
    """Ranks in uninterruptible sleep: they cannot be ended, and a new one would meet the same device."""
    if diagnosis is None or diagnosis.rule != _FROZEN_RULE:
        return ()
    facts = (one for one in diagnosis.evidence if one.rank is not None and one.fact.startswith(_BLOCKED))
    return tuple(sorted({one.rank for one in facts if one.rank is not None}))


def node_to_blame(diagnosis: Diagnosis | None) -> str:
    """The one node that a hang of high confidence certainly comes from, ``""`` for none."""
    if diagnosis is None or diagnosis.verdict not in _HANGS or diagnosis.confidence != "high":
        return ""
    blames = diagnosis.severity == "error" or diagnosis.kind == "frozen"
    return diagnosis.nodes[0] if blames and diagnosis.culprits and len(diagnosis.nodes) == 1 else ""


def may_leave(rules: Rules) -> bool:
    """Whether a node that is to blame leaves the job."""
    if rules.isolate_nodes == "auto":
        return rules.nodes_have_room
    return rules.isolate_nodes


def must_be_spared(diagnosis: Diagnosis, rules: Rules) -> bool:
    """Whether the job ends, to be run again elsewhere, because it cannot do without the node to blame.

    A rank that is frozen but not blocked is no reason: its process can be ended, and a new one started.
    """
    return rules.isolate_nodes == "auto" and not rules.nodes_have_room and diagnosis.severity == "error"


def leaving(node: str, rules: Rules) -> str:
    """That a node leaves, a phrase."""
    rest = "without it" if rules.nodes_have_room else "once another takes its place"
    return f"{node} leaves the job (--isolate-nodes {rules.isolate_nodes}), which goes on {rest}"
