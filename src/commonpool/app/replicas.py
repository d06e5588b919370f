"""Replicas and what their engines say of themselves: as the admin API shows them, and as alerts are found from them."""

from collections.abc import Iterable, Iterator

import msgspec

from commonpool.api.wire.status import EngineStatus, ReplicaStatus
from commonpool.control.alerting.rules import Running
from commonpool.control.gauging import Gauged
from commonpool.control.seat import State as Seated
from commonpool.control.seat import Status as Seat
from commonpool.core import views
from commonpool.core.state import State


def shown(state: State, seats: Iterable[Seat]) -> Iterator[ReplicaStatus]:
    """What the core knows of the replica in each seat of the supervisor, and the supervisor of its process."""
    for seat in seats:
        replica = seat.replica
        said = str(seat.state)
        if views.draining(state, replica.id) and seat.state is not Seated.STOPPING:
            said = "draining"
        elif views.failing(state, replica.id) and seat.state is Seated.READY:
            said = "failing"
        yield ReplicaStatus(
            id=replica.id,
            model=replica.model,
            state=said,
            since_ns=seat.since_ns,
            running=views.in_flight(state, replica.id),
            slots=replica.slots,
            milli_gpu=replica.milli_gpu,
            node=replica.node,
            devices=replica.devices,
            address=seat.address,
            pid=seat.pid,
            engine=engine(seat.engine),
        )


def engine(said: Gauged | None) -> EngineStatus | None:
    """None where the engine never said anything."""
    if said is None:
        return None
    if said.gauges is None:
        return EngineStatus(said.at_ns)
    gauges = said.gauges
    return EngineStatus(said.at_ns, gauges.running, gauges.waiting, gauges.kv_milli, foreign=said.foreign)


def running(replica: ReplicaStatus, pool: str) -> Running:
    """A replica of a pool, and what is in its engine."""
    said = replica.engine
    fact = Running(replica.id, replica.model, pool, replica.state, replica.address or "")
    if said is None:
        return fact
    sequences = (said.running or 0) + (said.waiting or 0)
    return msgspec.structs.replace(fact, sequences=sequences, foreign=said.foreign, unread=said.running is None)
