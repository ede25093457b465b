"""How many looks a diagnosis of a running job takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.classify_factory import ARank, a_job, a_rank, judge, user

from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.settled import settle

WAITING = (a_rank(0).waiting_in(), a_rank(1).waiting_in())


def stands(*, cpu: float = 0.0) -> ARank:
    return a_rank(2).stuck_in(user("build", 34)).but(cpu=cpu)


def look(rank: ARank, seconds: float) -> JobSnapshot:
    return a_job(*(one.but(step=5) for one in (*WAITING, rank)), seconds=seconds)


@dataclass
class Looks:
    """What was asked for, after looks at 0 and 4 s."""

    third: JobSnapshot
    taken: list[str] = field(default_factory=list[str])

    def quick(self, diagnosis: Diagnosis) -> tuple[JobSnapshot, ...]:
        if all(one.state != "suspected" for one in diagnosis.ranks):
            return ()
        self.taken.append("quick")
        return tuple(a_job(stands(), seconds=5.0 + at / 4, world_size=3) for at in range(20))

    def again(self) -> JobSnapshot:
        self.taken.append("again")
        return self.third

    def settle(self, *pair: JobSnapshot) -> Diagnosis:
        first, second = pair
        return settle(
            (first, second),
            judge=lambda looks, samples: judge(*looks, samples=samples),
            quick=self.quick,
            again=self.again,
        )


def worked() -> tuple[JobSnapshot, JobSnapshot]:
    """It used 2 s of a core before it came to where it stands at the second look."""
    return look(stands(cpu=0.0), 0.0), look(stands(cpu=0.5), 4.0)


def test_a_hang_that_two_looks_show_takes_no_more() -> None:
    looks = Looks(look(stands(), 10.0))
    found = looks.settle(look(stands(), 0.0), look(stands(), 4.0))
    assert (found.culprits, looks.taken) == ((2,), [])


def test_a_rank_that_worked_until_the_second_look_and_stands_since_is_named_by_a_third() -> None:
    # 0.5 of a core until 4 s are 2 s in all, and so many they are at 10 s.
    looks = Looks(look(stands(cpu=0.2), 10.0))
    found = looks.settle(*worked())
    assert looks.taken == ["quick", "again"]
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (2,))


def test_a_rank_that_works_on_stays_suspected() -> None:
    looks = Looks(look(stands(cpu=0.5), 10.0))
    found = looks.settle(*worked())
    assert looks.taken == ["quick", "again"]
    assert (found.verdict, found.culprits) == ("Unknown", ())
