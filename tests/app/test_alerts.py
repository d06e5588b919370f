"""The facts that alerts are made of, as the core and the files have them."""

from pathlib import Path

import msgspec

from commonpool.app.alerts import certificates, overdue, waiting
from commonpool.config import parse_sources
from commonpool.config.structs import Listen
from commonpool.control.alerting.rules import Waiting
from commonpool.core.model import NS_PER_S
from tests.access.certificates import Authority
from tests.api.fakes import NOW, FakeOperations, sources
from tests.core.worlds import S, World, policy, tenant


def test_the_oldest_request_of_each_queue_is_known_with_its_promise() -> None:
    here = World(policy(tenant("a", 1000), tenant("b", 1000)), replicas=0)
    here.arrive("r0", "a")
    here.now = 3 * S
    here.arrive("r1", "a")
    here.now = 10 * S
    assert list(waiting(here.machine.state, here.now)) == [Waiting("a", "m", "main", 10 * S, 120 * S)]
    here.ready("m-0")  # which starts both
    assert list(waiting(here.machine.state, here.now)) == []


def test_what_is_lent_is_overdue_once_it_was_expected_back() -> None:
    here = World(policy(tenant("a", 2000), tenant("b", 2000)))
    here.ready("m-1")
    for number in range(16):
        here.arrive(f"b{number}", "b")
    assert overdue(here.machine.state, here.now) == {}  # nobody needs it back
    here.arrive("a0", "a")
    found = overdue(here.machine.state, here.now + 3600 * S)
    assert found == {"a": 2000}


def test_certificates_are_read_as_they_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.issue("gateway", ends_days=10)
    config = msgspec.structs.replace(parse_sources(sources()), listen=Listen(gateway_tls=good))
    now = good.certificate.stat().st_mtime_ns
    (ends,) = certificates(config, now)
    assert ends.listener == "gateway"
    assert 9 * 86_400 * NS_PER_S < ends.ends_ns - now < 11 * 86_400 * NS_PER_S
    good.certificate.unlink()
    (gone,) = certificates(config, now)
    assert "is not there" in gone.problem


def test_what_is_wrong_is_what_status_warns_of() -> None:
    product = FakeOperations()
    assert product.alerts().warnings() == {}
    product.configure(sources())
    product.now = NOW
    assert {family.name for family in product.alerts().families()} == {"alerts", "alert_messages"}
