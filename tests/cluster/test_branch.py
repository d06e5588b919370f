"""A gateway and a core that talk by calls which may be lost, and a core that may be another one the next moment."""

import asyncio
import random
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.model import Outcome
from commonpool.store.contract import Key
from tests.cluster.hall import SLOTS, Client, Core, Gateway
from tests.gateway.fakes import run, until


async def quiet(core: Core) -> None:
    """Everything that was said has been heard."""
    calls = -1
    while calls != core.calls["tell"]:
        calls = core.calls["tell"]
        await asyncio.sleep(0.02)


def test_a_request_is_dispatched_and_settled(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        client = gateway.client("1")
        await until(lambda: client.attempts == [1])
        assert core.use > 0
        client.end()
        await until(lambda: core.use == 0)
        assert [(each.request_id, each.outcome, each.tokens_out) for each in core.records] == [
            ("a-1", Outcome.COMPLETED, 5)
        ]
        assert gateway.desk.limits("support") == b"support"
        assert gateway.desk.ready() == (True, "")
        await gateway.end()

    run(main)


def test_what_happens_in_one_turn_is_one_call(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        await until(lambda: gateway.desk.ready()[0])
        before = core.calls["tell"]
        clients = [gateway.client(str(number)) for number in range(100)]
        gateway.desk.answered("invalid_api_key")
        await until(lambda: core.waiting == 100 - SLOTS)
        assert core.calls["tell"] - before == 1
        assert core.errors == {"invalid_api_key": 1}
        assert sum(map(bool, (each.attempts for each in clients))) <= SLOTS
        await gateway.end()

    run(main)


@pytest.mark.parametrize("call", ["hello", "tell", "listen"])
def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(tmp_path: Path, call: str) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        core.lose[call] = 3
        gateway = Gateway(core, "a")
        clients = [gateway.client(str(number)) for number in range(2 * SLOTS)]
        for at in (0, SLOTS):
            await until(lambda at=at: all(each.attempts for each in clients[at : at + SLOTS]))  # type: ignore[misc]
            for each in clients[at : at + SLOTS]:
                each.end()
        await until(lambda: len(core.records) == 2 * SLOTS and core.use == 0)
        await quiet(core)
        assert all(each.attempts == [1] for each in clients)
        assert Tally(each.request_id for each in core.records).most_common(1)[0][1] == 1
        await gateway.end()

    run(main)


def test_a_core_that_was_restarted_is_told_what_runs_and_what_waits(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        clients = [gateway.client(str(number)) for number in range(SLOTS + 2)]
        await until(lambda: all(each.attempts for each in clients[:SLOTS]) and core.waiting == 2)
        taken = core.use
        core.restart()
        await until(lambda: core.waiting == 2)
        assert core.use == taken
        assert [each.attempts for each in clients] == [[1]] * SLOTS + [[]] * 2
        clients[0].end()
        await until(lambda: clients[SLOTS].attempts == [1])
        assert core.use == taken
        for each in clients[1 : SLOTS + 1]:
            each.end()
        await until(lambda: bool(clients[-1].attempts))
        clients[-1].end()
        await until(lambda: core.use == 0)
        assert len(core.records) == SLOTS + 2
        await gateway.end()

    run(main)


def test_what_ends_while_the_core_is_away_is_settled_once_by_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        client, gone = gateway.client("1"), gateway.client("2")
        await until(lambda: client.attempts == gone.attempts == [1])
        core.down = True
        client.end()
        waiting = gateway.client("3")
        left = gateway.client("4")
        gateway.desk.cancel(left.request.id)
        await asyncio.sleep(0.05)
        assert gateway.desk.ready()[0] is False
        core.restart()
        core.down = False
        await until(lambda: waiting.attempts == [1])
        assert [each.request_id for each in core.records] == ["a-1"]
        gone.end()
        waiting.end()
        await until(lambda: core.use == 0)
        await quiet(core)
        assert sorted(each.request_id for each in core.records) == ["a-1", "a-2", "a-3"]
        assert left.attempts == left.over == []
        await gateway.end()

    run(main)


def test_an_attempt_that_failed_before_the_restart_is_not_an_attempt_less(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        clients = [gateway.client(str(number)) for number in range(SLOTS)]
        await until(lambda: all(each.attempts for each in clients))
        core.down = True
        clients[0].end(Outcome.FAILED, retry=True)
        await asyncio.sleep(0.02)
        core.restart()
        core.down = False
        await until(lambda: core.ticked() and clients[0].attempts == [1, 2])
        for each in clients:
            each.end()
        await until(lambda: core.use == 0)
        assert sorted((each.request_id, each.attempt) for each in core.records) == [("a-0", 1), ("a-0", 2), ("a-1", 1)]
        await gateway.end()

    run(main)


def test_what_waits_is_submitted_again_only_when_every_gateway_has_told_what_runs(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        a, b = Gateway(core, "a"), Gateway(core, "b")
        running = [b.client(str(number)) for number in range(SLOTS)]
        await until(lambda: all(each.attempts for each in running))
        waiting = a.client("1")
        await until(lambda: core.waiting == 1)
        await b.end()  # it is slow to find the new core
        core.expected = {"a", "b"}
        core.restart()
        await until(lambda: core.hall.open_requests == 1)
        await asyncio.sleep(0.05)
        assert waiting.attempts == []
        b._talking = asyncio.ensure_future(b.desk.run())  # type: ignore[attr-defined]
        await until(lambda: core.waiting == 1)
        assert waiting.attempts == []
        running[0].end()
        await until(lambda: waiting.attempts == [1])
        await a.end()
        await b.end()

    run(main)


def test_all_that_a_lost_gateway_had_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway, other = Gateway(core, "a"), Gateway(core, "b")
        clients = [gateway.client(str(number)) for number in range(SLOTS + 1)]
        await until(lambda: all(each.attempts for each in clients[:SLOTS]) and core.waiting == 1)
        still = other.client("1")
        await until(lambda: core.waiting == 2)
        await gateway.end()
        core.hall.lost("a", "another process's")
        assert still.attempts == []
        core.hall.lost("a", "1")
        await until(lambda: still.attempts == [1])
        assert core.waiting == 0
        still.end()
        await until(lambda: core.use == 0)
        assert Tally(each.outcome for each in core.records) == {Outcome.CANCELLED: SLOTS + 1, Outcome.COMPLETED: 1}
        await other.end()

    run(main)


def test_the_next_process_of_a_gateway_takes_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        first = Gateway(core, "a")
        client = first.client("1")
        await until(lambda: client.attempts == [1])
        await first.end()
        second = Gateway(core, "a", "2")
        await until(lambda: core.use == 0)
        core.hall.lost("a", "1")  # the late word about the first
        after = second.client("2")
        await until(lambda: after.attempts == [1])
        after.end()
        await until(lambda: core.use == 0)
        await second.end()

    run(main)


def test_a_client_that_leaves_while_its_request_is_sent_on_costs_no_slot(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        clients = [gateway.client(str(number)) for number in range(SLOTS)]
        for each in clients:
            gateway.desk.cancel(each.request.id)
        await quiet(core)
        await until(lambda: core.use == 0)
        assert core.waiting == 0
        assert all(each.attempts == [] for each in clients)
        await gateway.end()

    run(main)


def test_a_changed_key_reaches_the_gateways(tmp_path: Path) -> None:
    from commonpool.cluster.messages import KeyChanged, revoked  # noqa: PLC0415

    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        await until(lambda: gateway.desk.ready()[0])
        key = Key("k1", b"salt", b"digest", "data", "support", "helpdesk", 1)
        core.hall.tell_all(KeyChanged(revoked(key)))
        await until(lambda: gateway.revoked == ["k1"])
        await gateway.end()

    run(main)


Step = Callable[[random.Random], Awaitable[None]]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_lost_everything_ends_once_and_nothing_stays_taken(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        core = Core(tmp_path_factory.mktemp("core"))
        gateways = [Gateway(core, "a"), Gateway(core, "b")]
        clients: list[Client] = []
        cancelled: set[str] = set()

        def act() -> None:
            what = dice.random()
            runs = [each for each in clients if each.attempts and not each.over and each.request.id not in cancelled
                    and each.attempts[-1] not in ended[each.request.id]]  # fmt: skip
            waits = [each for each in clients if not each.attempts and not each.over
                     and each.request.id not in cancelled]  # fmt: skip
            if what < 0.4:
                clients.append(dice.choice(gateways).client(str(len(clients))))
            elif what < 0.7 and runs:
                chosen = dice.choice(runs)
                retry = dice.random() < 0.2
                ended[chosen.request.id].append(chosen.attempts[-1])
                chosen.end(Outcome.FAILED if retry else Outcome.COMPLETED, retry=retry)
            elif what < 0.78 and waits:
                chosen = dice.choice(waits)
                cancelled.add(chosen.request.id)
                chosen.desk.cancel(chosen.request.id)
            elif what < 0.85:
                core.restart()
            elif what < 0.9:
                core.down = not core.down
            else:
                core.lose[dice.choice(["hello", "tell", "listen"])] += 1

        ended: dict[str, list[int]] = {f"{name}-{number}": [] for name in "ab" for number in range(80)}
        for _ in range(80):
            act()
            await asyncio.sleep(dice.choice((0, 0, 0.001)))
        core.down = False

        def finish() -> bool:
            core.ticked()
            for each in clients:
                if each.attempts and not each.over and each.attempts[-1] not in ended[each.request.id]:
                    ended[each.request.id].append(each.attempts[-1])
                    each.end()
            return all(each.over or each.request.id in cancelled for each in clients)

        await until(finish)
        await until(lambda: core.use == 0 and core.waiting == 0 and core.hall.open_requests == 0)
        for each in clients:
            assert len(each.over) <= 1
            assert len(set(each.attempts)) == len(each.attempts)
        # Each attempt that was made has its record, whichever core wrote it; a second one says the same.
        records = {(each.request_id, each.attempt) for each in core.records if each.replica}
        assert records >= {(each.request.id, attempt) for each in clients for attempt in ended[each.request.id]}
        for gateway in gateways:
            await gateway.end()

    run(main)
