"""What an engine says of itself: what the API shows of it, and what alerts go by."""

import msgspec

from commonpool.api.wire.status import EngineStatus
from commonpool.app.engines import engine, running
from commonpool.control.alerting.rules import Running
from commonpool.control.gauging import Gauged
from commonpool.engines.gauges import Gauges
from tests.api.fakes import REPLICA


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
