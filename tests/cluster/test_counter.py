"""The hall: when all that ran before a restart of the core has been told."""

import asyncio
from pathlib import Path

from commonpool.cluster.messages import Hello
from tests.cluster.hall import Core


def hello(gateway: str) -> Hello:
    return Hello(gateway, "session", 1, [], [], [])


def test_all_is_told_when_every_gateway_of_before_has_come_or_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        core = Core(tmp_path)
        assert core.hall.recovered.is_set()  # there is none
        core.expected = {"one", "two", "three"}
        core.restart()
        assert not core.hall.recovered.is_set()
        core.hall.greet(hello("one"))
        core.hall.greet(hello("new"))
        core.hall.lost("two")
        assert not core.hall.recovered.is_set()
        core.hall.greet(hello("three"))
        assert core.hall.recovered.is_set()

    asyncio.run(story())


def test_the_time_for_it_is_over_in_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        core = Core(tmp_path)
        core.hall.recovered.clear()
        core.hall.expect({"one"}, 0)
        await core.hall.recovered.wait()

    asyncio.run(story())
