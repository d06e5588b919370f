"""Given several readers who ask the same, then it is worked out once, for a while; a failure is nobody else's."""

import asyncio

import pytest

from commonpool.console.sharing import KEPT_MAX, Shared


class World:
    """A clock that is set, and answers that are counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made = 0
        self.shared = Shared(lambda: self.now)
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False

    async def ask(self, key: bytes = b"k", usable_s: float = 0.0) -> int:
        return await self.shared.get(key, 4.0, self._make, usable_s)

    async def _make(self) -> int:
        self.made += 1
        number = self.made
        await self.gate.wait()
        if self.broken:
            raise ValueError("broken")
        return number


def test_one_answer_for_a_while_and_for_all_who_wait() -> None:
    async def scene() -> None:
        world = World()
        world.gate.clear()
        asked = [asyncio.ensure_future(world.ask()) for _ in range(3)]
        other = asyncio.ensure_future(world.ask(b"other"))
        await asyncio.sleep(0)
        world.gate.set()
        assert await asyncio.gather(*asked) == [1, 1, 1]
        assert await other == 2
        world.now = 3.9
        assert await world.ask() == 1
        world.now = 4.0
        assert await world.ask() == 3

    asyncio.run(scene())


def test_what_takes_long_is_not_begun_twice() -> None:
    async def scene() -> None:
        world = World()
        world.gate.clear()
        first = asyncio.ensure_future(world.ask())
        await asyncio.sleep(0)
        world.now = 100.0
        second = asyncio.ensure_future(world.ask())
        await asyncio.sleep(0)
        world.gate.set()
        assert list(await asyncio.gather(first, second)) == [1, 1]

    asyncio.run(scene())


def test_a_failure_is_told_to_who_waits_and_not_kept() -> None:
    async def scene() -> None:
        world = World()
        world.broken = True
        with pytest.raises(ValueError, match="broken"):
            await world.ask()
        world.broken = False
        assert await world.ask() == 2

    asyncio.run(scene())


def test_who_comes_after_a_silence_has_the_one_before_while_the_next_is_made() -> None:
    async def scene() -> None:
        world = World()
        assert await world.ask(usable_s=10.0) == 1
        world.now = 13.9
        world.gate.clear()
        assert [await world.ask(usable_s=10.0), await world.ask(usable_s=10.0)] == [1, 1]
        await asyncio.sleep(0)
        assert world.made == 2
        world.gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await world.ask(usable_s=10.0) == 2
        world.now = 28.0
        assert await world.ask(usable_s=10.0) == 3

    asyncio.run(scene())


def test_the_one_before_is_given_for_a_while_though_the_next_never_comes() -> None:
    async def scene() -> None:
        world = World()
        assert await world.ask(usable_s=10.0) == 1
        world.now = 5.0
        world.gate.clear()
        assert await world.ask(usable_s=10.0) == 1
        world.now = 9.1
        late = asyncio.ensure_future(world.ask(usable_s=10.0))
        await asyncio.sleep(0)
        assert not late.done()
        world.gate.set()
        assert await late == 2

    asyncio.run(scene())


def test_a_failure_of_the_next_is_no_answer_and_is_asked_again() -> None:
    async def scene() -> None:
        world = World()
        await world.ask(usable_s=10.0)
        world.now = 5.0
        world.broken = True
        assert await world.ask(usable_s=10.0) == 1
        await asyncio.sleep(0)
        assert world.made == 2
        with pytest.raises(ValueError, match="broken"):
            await world.ask(usable_s=10.0)
        world.broken = False
        assert await world.ask(usable_s=10.0) == 4

    asyncio.run(scene())


def test_who_leaves_takes_nothing_from_the_others() -> None:
    async def scene() -> None:
        world = World()
        world.gate.clear()
        leaves, stays = (asyncio.ensure_future(world.ask()) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        world.gate.set()
        assert await stays == 1
        assert leaves.cancelled()

    asyncio.run(scene())


def test_so_many_are_kept_and_the_one_that_gets_old_first_makes_room() -> None:
    async def scene() -> None:
        world = World()
        for number in range(KEPT_MAX):
            world.now = number / KEPT_MAX
            await world.ask(b"%d" % number)
        assert await world.ask(b"new") == KEPT_MAX + 1
        assert [await world.ask(b"1"), await world.ask(b"new")] == [2, KEPT_MAX + 1]
        assert await world.ask(b"0") == KEPT_MAX + 2

    asyncio.run(scene())


def test_what_is_being_worked_out_makes_no_room() -> None:
    async def scene() -> None:
        world = World()
        world.gate.clear()
        first = [asyncio.ensure_future(world.ask(b"%d" % number)) for number in range(KEPT_MAX)]
        await asyncio.sleep(0)
        more = [asyncio.ensure_future(world.ask(b"more")) for _ in range(2)]
        again = asyncio.ensure_future(world.ask(b"0"))
        await asyncio.sleep(0)
        world.gate.set()
        assert await asyncio.gather(*first, again) == [*range(1, KEPT_MAX + 1), 1]
        assert await asyncio.gather(*more) == [KEPT_MAX + 1, KEPT_MAX + 2]

    asyncio.run(scene())
