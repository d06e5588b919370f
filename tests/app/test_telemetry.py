"""What is measured of the whole product, at the moment of a scrape."""

import asyncio

import msgspec

from commonpool.api.wire.status import EngineStatus, ReplicaStatus
from commonpool.app import telemetry
from commonpool.app.telemetry import Telemetry
from commonpool.control.seat import State, Status
from commonpool.core.model import NS_PER_S, Replica
from commonpool.observe.decisions import Decision, Decisions
from commonpool.observe.exposition import Family, render
from tests.observe.test_metrics import parsed


def status(replica: str, state: str, running: int = 0) -> ReplicaStatus:
    return ReplicaStatus(
        id=replica,
        model="m",
        state=state,
        since_ns=0,
        running=running,
        slots=4,
        milli_gpu=1000,
        node="",
        devices=(),
        address=None,
        pid=None,
    )


def seat(replica: str, state: State, heard_ns: int) -> Status:
    return Status(Replica(replica, "m", 1000, 4, 4096), state, 0, None, None, heard_ns)


def test_replicas_by_state_and_when_they_were_last_heard_of() -> None:
    found = parsed(
        render(
            telemetry.replicas(
                [status("m-0", "ready", 3), status("m-1", "unknown"), status("m-2", "starting")],
                [
                    seat("m-0", State.READY, 99 * NS_PER_S),
                    seat("m-1", State.UNKNOWN, 60 * NS_PER_S),
                    seat("m-2", State.STARTING, 0),
                ],
                ["m", "other"],
                100 * NS_PER_S,
            )
        )
    )
    states = {state: found[f"commonpool_replicas{{model=m,state={state}}}"] for state in telemetry.STATES}
    assert states == {"starting": 1, "ready": 1, "unknown": 1, "failing": 0, "draining": 0, "stopping": 0}
    assert found["commonpool_replicas{model=other,state=ready}"] == 0
    heard = {name: value for name, value in found.items() if "unheard" in name}
    assert heard == {
        "commonpool_replica_unheard_seconds{model=m,replica=m-0}": 1,
        "commonpool_replica_unheard_seconds{model=m,replica=m-1}": 40,
    }
    assert found["commonpool_replica_ready{model=m,replica=m-0}"] == 1
    assert found["commonpool_replica_ready{model=m,replica=m-1}"] == 0
    assert found["commonpool_replica_running_requests{model=m,replica=m-0}"] == 3


def test_what_engines_say_of_themselves_and_nothing_of_what_is_not_known() -> None:
    one = msgspec.structs.replace(status("m-0", "ready"), engine=EngineStatus(0, 7, 2, 815, foreign=5))
    old = msgspec.structs.replace(status("m-1", "ready"), engine=EngineStatus(0))
    lean = msgspec.structs.replace(status("m-2", "ready"), engine=EngineStatus(0, 0))
    found = parsed(render(telemetry.replicas([one, old, lean, status("m-3", "ready")], [], ["m"], 0)))
    assert {name: value for name, value in found.items() if name.startswith("commonpool_engine_")} == {
        "commonpool_engine_running_requests{model=m,replica=m-0}": 7,
        "commonpool_engine_running_requests{model=m,replica=m-2}": 0,
        "commonpool_engine_waiting_requests{model=m,replica=m-0}": 2,
        "commonpool_engine_kv_ratio{model=m,replica=m-0}": 0.815,
        "commonpool_engine_foreign_requests{model=m,replica=m-0}": 5,
        "commonpool_engine_foreign_requests{model=m,replica=m-2}": 0,
        "commonpool_engine_known{model=m,replica=m-0}": 1,
        "commonpool_engine_known{model=m,replica=m-1}": 0,
        "commonpool_engine_known{model=m,replica=m-2}": 1,
    }


def test_what_is_kept_for_later_by_tenant_also_of_one_that_is_gone() -> None:
    found = parsed(render(telemetry.later({"a": (2, 700), "gone": (1, 5)}, ["a", "b"])))
    assert found == {
        "commonpool_tenant_later_requests{tenant=a}": 2,
        "commonpool_tenant_later_requests{tenant=b}": 0,
        "commonpool_tenant_later_requests{tenant=gone}": 1,
        "commonpool_tenant_later_bytes{tenant=a}": 700,
        "commonpool_tenant_later_bytes{tenant=b}": 0,
        "commonpool_tenant_later_bytes{tenant=gone}": 5,
    }


def test_decisions_are_counted_by_kind_also_those_that_are_not_kept() -> None:
    decisions = Decisions(kept_max=1)
    for kind in ("loan", "loan", "quota"):
        decisions.add(Decision(0, kind, "So."))
    found = parsed(render(telemetry.decided(decisions)))
    assert found["commonpool_decisions_total{kind=loan}"] == 2
    assert found["commonpool_decisions_total{kind=quota}"] == 1
    assert found["commonpool_decisions_total{kind=scaling}"] == 0


def test_sources_are_asked_at_each_scrape_in_order() -> None:
    asked: list[int] = []

    def source() -> list[Family]:
        asked.append(len(asked))
        return [Family("asked", "counter", "Scrapes.", (), [((), len(asked))])]

    async def main() -> list[float]:
        here = Telemetry({})
        here.add(source)
        texts = await asyncio.gather(here.scrape(), here.scrape())
        return [parsed(text)["commonpool_asked_total{}"] for text in texts]

    assert asyncio.run(main()) == [1, 2]
