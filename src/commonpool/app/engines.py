"""What an engine says of itself, as the admin API shows it."""

from commonpool.api.wire.status import EngineStatus
from commonpool.control.gauging import Gauged


def engine(said: Gauged | None) -> EngineStatus | None:
    """None where the engine never said anything."""
    if said is None:
        return None
    if said.gauges is None:
        return EngineStatus(said.at_ns)
    return EngineStatus(
        said.at_ns, said.gauges.running, said.gauges.waiting, said.gauges.kv_milli, foreign=said.foreign
    )
