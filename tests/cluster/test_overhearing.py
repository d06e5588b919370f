"""What a gateway overhears comes to the core, once it is there; what there is no room for is counted."""

import asyncio
from typing import Any

import pytest

from commonpool.cluster import messages
from commonpool.cluster.messages import Overheard
from commonpool.cluster.overhearing import BATCH_BYTES, Overhearing
from commonpool.store.prompts import PromptHead, Spoken
from tests.gateway.fakes import run, until


def spoken(name: str, size: int = 10, tenant: str = "a") -> Spoken:
    head = PromptHead(tenant, 1, name, "app", "m", "chat", 0)
    return Spoken(head, b"x" * size, b"", cut=False, gone=False)


class Core:
    def __init__(self) -> None:
        self.away = False
        self.missed = 0
        self.told: list[Overheard] = []

    async def overheard(self, overheard: bytes) -> None:
        await asyncio.sleep(0)
        if self.away:
            self.missed += 1
            raise ConnectionError("the core is away")
        self.told.append(messages.decode_overheard(overheard))

    @property
    def names(self) -> list[list[str]]:
        return [[each.head.request_id for each in told.spoken] for told in self.told]


def test_it_comes_in_order_and_in_batches_of_a_size() -> None:
    async def main() -> None:
        core = Core()
        overhearing = Overhearing(core.overheard)
        for name in "12":
            overhearing.hear(spoken(name))
        overhearing.hear(spoken("3", BATCH_BYTES))
        overhearing.hear(spoken("4"))
        await overhearing.tell()
        await overhearing.tell()
        assert core.names == [["1", "2"], ["3"], ["4"]]
        assert core.told[0].spoken[0] == spoken("1")

    run(main)


def test_a_core_that_is_away_gets_it_later() -> None:
    async def main() -> None:
        core = Core()
        core.away = True
        overhearing = Overhearing(core.overheard, again_s=0.001)
        overhearing.hear(spoken("1"))
        with pytest.raises(ConnectionError):
            await overhearing.tell()
        telling = asyncio.create_task(overhearing.run())
        overhearing.hear(spoken("2"))
        await until(lambda: core.missed > 2)
        core.away = False
        await until(lambda: bool(core.told))
        assert core.names == [["1", "2"]]
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    run(main)


def test_what_there_is_no_room_for_is_counted_and_told() -> None:
    async def main() -> None:
        core = Core()
        overhearing = Overhearing(core.overheard, bytes_max=25)
        names: Any = [("1", "a"), ("2", "a"), ("3", "a"), ("4", "b")]
        for name, tenant in names:
            overhearing.hear(spoken(name, tenant=tenant))
        await overhearing.tell()
        assert core.names == [["1", "2"]]
        assert core.told[0].lost == {"a": 1, "b": 1}
        overhearing.hear(spoken("5"))
        await overhearing.tell()
        assert (core.names[1], core.told[1].lost) == (["5"], {})

    run(main)
