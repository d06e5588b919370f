"""Given models whose replicas come up, or cannot, then whether the start is over, and what is missing."""

import asyncio
from pathlib import Path

import pytest

from commonpool.app import readiness
from commonpool.control.replicas import StartError
from commonpool.core.crew import FAILURES_MAX
from commonpool.store.journal import Journal
from tests.core.clusters import Cluster, deployment, rules
from tests.core.worlds import tenant

BAD = "The weights are bad."


def two() -> Cluster:
    """Models `m` and `n` with a replica each, which are being started."""
    models = (deployment("m"), deployment("n"))
    here = Cluster(rules(tenant("a", 4000), models=models, milli_gpu=8000))
    here.tick()
    return here


def fail(here: Cluster, model: str) -> None:
    """Its starts fail until its circuit opens."""
    for number in range(1, FAILURES_MAX + 1):
        here.goes(f"{model}-0.{number}", BAD)
        here.later(number).tick()


def test_the_start_is_over_when_each_model_has_a_replica_or_cannot_have_one() -> None:
    async def main() -> None:
        here = two()
        starting = asyncio.ensure_future(readiness.first_start(here.machine.state))
        here.comes("m-0.1")
        await asyncio.sleep(0)
        assert not starting.done()
        fail(here, "n")
        await starting
        assert readiness.broken(here.machine.state) == [f"Model n cannot be served. {BAD}"]

    asyncio.run(main())


def test_the_start_fails_when_no_model_can_be_served() -> None:
    here = two()
    fail(here, "m")
    fail(here, "n")
    with pytest.raises(StartError, match=f"Model m cannot be served. {BAD}"):
        asyncio.run(readiness.first_start(here.machine.state))


def test_ready_says_what_is_missing(tmp_path: Path) -> None:
    here, journal = two(), Journal(tmp_path)
    here.comes("n-0.1")
    assert readiness.ready(here.machine.state, journal) == (False, "no replica is ready of: m")
    here.comes("m-0.1")
    assert readiness.ready(here.machine.state, journal) == (True, "ready")
    journal.overdue = "It has kept them for too long."
    assert readiness.ready(here.machine.state, journal) == (False, journal.overdue)
    journal.trouble = "The disk is full."
    assert readiness.ready(here.machine.state, journal) == (False, journal.trouble)
    journal.close()
