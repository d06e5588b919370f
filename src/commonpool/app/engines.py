"""What an engine says of itself: as the admin API shows it, and as alerts are found from it."""

import msgspec

from commonpool.api.wire.status import EngineStatus, ReplicaStatus
from commonpool.control.alerting.rules import Running
from commonpool.control.gauging import Gauged


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
