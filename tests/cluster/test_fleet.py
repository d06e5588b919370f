"""What gateways have counted, in the metrics of the core."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("ray")

from commonpool.backends.ray.nodes import Nodes
from commonpool.cluster.fleet import Fleet, SharedIdentity
from commonpool.cluster.messages import Batch, Counted, Hello
from commonpool.observe.exporting import Became
from commonpool.observe.metrics import Meter
from commonpool.store.prompts import Spoken
from tests.cluster.hall import EPOCH, Core
from tests.observe.test_metrics import values


class Deaf:
    def hear(self, spoken: Spoken) -> None:
        raise AssertionError(spoken)

    def lose(self, tenant: str, count: int) -> None:
        raise AssertionError((tenant, count))


def test_what_a_gateway_counted_under_attack_is_added_in_one_step(tmp_path: Path) -> None:
    async def story() -> None:
        core, meter = Core(tmp_path), Meter()
        fleet = Fleet(
            core.config,
            core.desk,
            SharedIdentity((), lambda: EPOCH),
            "here",
            clock=lambda: EPOCH,
            ready=lambda: (True, ""),
            limits=lambda *_of: b"",
            failed=lambda _status, code, count: meter.refused("", code, count),
            slowed=meter.slowed,
            listener=Deaf(),
            reconfigured=lambda: None,
            doubt=Nodes().doubt,
        )
        many = 10**15  # one after the other would take for ever
        for number, gateway in enumerate("ab", 1):
            fleet.greet(Hello(gateway, "session", 1, [], [], []))
            counted = Counted({"invalid_api_key": many}, [("support", "at_once", many + number)], Became(many))
            fleet.hall.take(Batch(gateway, "session", 1, 0, [counted]))
        assert values(meter) == {
            "commonpool_refusals_total{reason=invalid_api_key,tenant=}": 2 * many,
            "commonpool_slowed_total{tenant=support,why=at_once}": 2 * many + 3,
        }

    asyncio.run(story())
