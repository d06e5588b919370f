"""Replicas and what their engines say of themselves: what the API shows of them, and what alerts go by."""

import msgspec

from commonpool.api.wire.status import EngineStatus
from commonpool.app.replicas import engine, running, shown
from commonpool.control.alerting.rules import Running
from commonpool.control.gauging import Gauged
from commonpool.control.seat import State, Status
from commonpool.core.events import ReplicaDraining
from commonpool.core.model import Replica
from commonpool.engines.gauges import Gauges
from tests.api.fakes import REPLICA
from tests.core.worlds import CONTEXT, SLOTS, World, policy, tenant


def test_what_is_shown() -> None:
    assert engine(None) is None
    assert engine(Gauged(5, None)) == EngineStatus(5)
    assert engine(Gauged(5, Gauges(7, 2, 815, 99.0), foreign=5)) == EngineStatus(5, 7, 2, 815, 5)
    assert engine(Gauged(5, Gauges(0))) == EngineStatus(5, 0, None, None, 0)


def test_what_alerts_go_by() -> None:
    replica = msgspec.structs.replace(REPLICA, address="http://h:1")
    plain = Running("echo-0.1", "echo", "main", "ready", "http://h:1")

    def fact(said: EngineStatus | None) -> Running:
        return running(msgspec.structs.replace(replica, engine=said), "main")

    assert fact(None) == plain
    assert fact(EngineStatus(5)) == msgspec.structs.replace(plain, unread=True)
    assert fact(EngineStatus(5, 7, 2, foreign=5)) == msgspec.structs.replace(plain, sequences=9, foreign=5)
    assert fact(EngineStatus(5, 7, None)) == msgspec.structs.replace(plain, sequences=7)


def test_a_replica_is_shown_with_what_the_core_knows_of_it_until_it_stops() -> None:
    here = World(policy(tenant("a", 2000)), replicas=2)
    here.arrive("r", "a")
    here.send(ReplicaDraining("m-1"))
    said = Gauged(5, Gauges(1))

    def seats(state: State) -> list[Status]:
        replicas = [Replica(f"m-{n}", "m", 2000, SLOTS, SLOTS * CONTEXT) for n in range(2)]
        return [Status(replica, state, 3, 77, "http://h:1", engine=said) for replica in replicas]

    first, second = shown(here.machine.state, seats(State.READY))
    assert (first.id, first.state, first.running, first.slots, first.milli_gpu) == ("m-0", "ready", 1, SLOTS, 2000)
    assert (first.since_ns, first.pid, first.address, first.engine) == (3, 77, "http://h:1", engine(said))
    assert (second.id, second.state, second.running) == ("m-1", "draining", 0)
    assert [each.state for each in shown(here.machine.state, seats(State.STOPPING))] == ["stopping", "stopping"]
