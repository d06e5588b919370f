"""A gateway and a core that talk by calls which may be lost, and a core that may be another one the next moment."""

import asyncio
import random
from collections import Counter as Tally
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.cluster.messages import Logging
from commonpool.core.model import Outcome
from commonpool.engines.registry import EMBEDDED
from commonpool.gateway.caches import Part
from commonpool.observe.exporting import Became
from commonpool.store.contract import Key
from tests.cluster.hall import SLOTS, Client, Core, Gateway
from tests.gateway.fakes import run, until

SLOT = {"id_slot": b"0"}
NO, YES = {"cache_prompt": b"false"}, {"cache_prompt": b"true"}


async def quiet(core: Core) -> None:
    """Everything that was said has been heard."""
    calls = -1
    while calls != core.calls["tell"]:
        calls = core.calls["tell"]
        await asyncio.sleep(0.02)
        for _ in range(50):  # on a busy machine that time may pass without a turn for anybody
            await asyncio.sleep(0)


async def often(core: Core, call: str) -> None:
    """The gateways have made this call again and again, and it was time to tell what is counted as often."""
    calls = core.calls[call]
    await until(lambda: core.calls[call] >= calls + 20)


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
        assert gateway.desk.limits("support", "helpdesk", "k1") == b"support/helpdesk/k1"
        assert gateway.desk.limits("support", "helpdesk", "k2") == b""
        assert gateway.desk.ready() == (True, "")
        await gateway.end()

    run(main)


def test_what_is_told_of_the_prompt_cache_goes_there_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path, EMBEDDED)
        gateway = Gateway(core, "a")
        for number, part in enumerate((Part(SLOT | NO, "head"), Part(SLOT | YES, "head"))):
            client = gateway.client(str(number))
            await until(lambda: bool(client.attempts))  # noqa: B023 - it is awaited here
            assert client.parts == [part]
            client.land()
            client.end()
            await until(lambda: core.use == 0)
        await gateway.end()

    run(main)


def test_a_gateway_knows_whose_prompts_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        core.logging = ["support"]
        gateway = Gateway(core, "a")
        await until(lambda: gateway.logging == frozenset({"support"}))
        core.hall.tell_all(Logging(["research", "support"]))
        await until(lambda: gateway.logging == frozenset({"research", "support"}))
        core.logging = []
        core.restart()
        await until(lambda: gateway.logging == frozenset())
        await gateway.end()

    run(main)


def test_an_answer_that_is_kept_is_counted_once_whatever_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        first = gateway.recalled("1")
        await until(lambda: first.over == ["recalled"])
        assert gateway.desk.limits("support", "helpdesk", "k1") == b"support/helpdesk/k1"
        core.lose["tell"] = core.lose["listen"] = 1
        second = gateway.recalled("2")
        await until(lambda: second.over == ["recalled"])
        await quiet(core)
        core.down = True
        third = gateway.recalled("3")
        core.expected = {"a", "b"}  # it needs nothing of what b may have
        core.restart()
        core.down = False
        await until(lambda: third.over == ["recalled"])
        assert [(each.request_id, each.attempt, each.tokens_cached) for each in core.records] == [
            (f"a-{number}", 1, 10) for number in (1, 2, 3)
        ]
        assert (core.use, core.waiting, first.attempts, third.attempts) == (0, 0, [], [])
        left = gateway.recalled("4")
        gateway.desk.cancel("a-4")
        await quiet(core)
        assert left.over == []
        await gateway.end()

    run(main)


def test_a_gateway_knows_what_build_answers(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        client = gateway.client("1")
        await until(lambda: client.attempts == [1])
        (target,) = client.targets
        assert (target.model, target.build) == ("tiny", core.config.policy.deployments["tiny"].engine)
        client.end()
        await gateway.end()

    run(main)


def test_what_happens_in_one_turn_is_one_call(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        await until(lambda: gateway.desk.ready()[0])
        before = core.calls["tell"]
        clients = [gateway.client(str(number)) for number in range(100)]
        await until(lambda: core.waiting == 100 - SLOTS)
        assert core.calls["tell"] - before == 1
        assert sum(map(bool, (each.attempts for each in clients))) <= SLOTS
        await gateway.end()

    run(main)


def test_a_request_alone_costs_two_calls_whatever_is_counted_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a", count_s=3600)
        await until(lambda: gateway.desk.ready()[0])
        before = core.calls["tell"]
        client = gateway.client("1")
        await until(lambda: client.attempts == [1])
        gateway.tallies.answered(401, "invalid_api_key")
        client.end()
        await quiet(core)
        assert core.calls["tell"] - before == 2
        assert not core.errors
        await gateway.end()

    run(main)


@pytest.mark.parametrize("lost", [0, 3])
def test_what_gateways_count_is_told_once_and_added_up(tmp_path: Path, lost: int) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateways = [Gateway(core, name, count_s=0.001) for name in "ab"]
        await until(lambda: all(gateway.desk.ready()[0] for gateway in gateways))
        core.lose["tell"] = lost
        for gateway in gateways:
            for _ in range(2):
                gateway.tallies.answered(401, "invalid_api_key")
            gateway.tallies.slowed("support", "refused")
            gateway.traced = Became(5, 1, 2)
        await until(lambda: core.traces.exported == 10)
        for gateway in gateways:
            gateway.traced = Became(7, 1, 2)
        await until(lambda: core.traces.exported == 14)
        assert core.traces == Became(14, 2, 4)
        assert core.errors == {"invalid_api_key": 4}
        assert core.slowed == {("support", "refused"): 2}
        for gateway in gateways:
            await gateway.end()

    run(main)


def test_what_was_counted_and_not_sent_yet_is_told_to_the_next_core(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a", count_s=0.001)
        await until(lambda: gateway.desk.ready()[0])
        core.down = True
        tells = core.calls["tell"]
        gateway.client("1")
        await until(lambda: core.calls["tell"] > tells)  # with this request alone; it does not come through
        gateway.tallies.answered(401, "invalid_api_key")
        await often(core, "tell")
        core.restart()
        core.down = False
        await until(lambda: core.errors == {"invalid_api_key": 1})
        await gateway.end()

    run(main)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_counted_while_the_core_is_away_is_one_sum_however_long(tmp_path: Path, restarted: bool) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a", count_s=0.001)
        await until(lambda: gateway.desk.ready()[0])
        core.down = True
        await until(lambda: not gateway.desk.ready()[0])
        for number in range(1, 6):
            gateway.tallies.answered(401, "invalid_api_key")
            gateway.tallies.slowed("support", "refused")
            gateway.traced = Became(number)
            await often(core, "listen")
        if restarted:
            core.restart()
        core.down = False
        await until(lambda: core.traces.exported == 5)
        assert core.counts == 1
        assert core.errors == {"invalid_api_key": 5}
        assert core.slowed == {("support", "refused"): 5}
        gateway.tallies.answered(401, "invalid_api_key")
        await until(lambda: core.errors == {"invalid_api_key": 6})
        await gateway.end()

    run(main)


def test_the_first_token_of_what_runs_is_known_at_its_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway, other = Gateway(core, "a"), Gateway(core, "b")
        client = gateway.client("1")
        await until(lambda: client.attempts == [1])
        assert core.hall.whose("a-1") == "a"
        assert gateway.desk.first_token_at("a-1") == 0
        client.first_token_at = 7
        assert gateway.desk.first_token_at("a-1") == 7
        assert other.desk.first_token_at("a-1") == 0
        client.end()
        await quiet(core)
        assert core.hall.whose("a-1") is None
        assert gateway.desk.first_token_at("a-1") == 0
        for each in (gateway, other):
            await each.end()

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
        await until(lambda: not gateway.desk.ready()[0])
        core.restart()
        core.down = False
        await until(lambda: waiting.attempts == [1])
        assert [each.request_id for each in core.records] == ["a-1"]
        gone.end()
        waiting.end()
        await until(lambda: core.use == 0)
        await quiet(core)
        assert sorted(each.request_id for each in core.records) == ["a-1", "a-2", "a-3"]
        assert (left.attempts, left.over) == ([], [])
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
        await often(core, "tell")
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
        await quiet(core)
        assert waiting.attempts == []
        b._talking = asyncio.ensure_future(b.desk.run())
        await until(lambda: core.waiting == 1)
        assert waiting.attempts == []
        running[0].end()
        await until(lambda: waiting.attempts == [1])
        await a.end()
        await b.end()

    run(main)


def test_what_is_new_meanwhile_waits_behind_it_and_may_leave(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        a, b = Gateway(core, "a"), Gateway(core, "b")
        running = [b.client(str(number)) for number in range(SLOTS)]
        await until(lambda: all(each.attempts for each in running))
        await b.end()  # it is slow to find the new core
        waiting = a.client("1")
        await until(lambda: core.waiting == 1)
        core.expected = {"a", "b"}
        core.restart()
        await until(lambda: core.hall.open_requests == 1)
        left, new = a.client("2"), a.client("3")
        await until(lambda: core.hall.open_requests == 3)
        a.desk.cancel(left.request.id)
        await until(lambda: core.hall.open_requests == 2)
        await quiet(core)
        assert waiting.attempts == new.attempts == []
        assert (core.use, core.waiting) == (0, 0)
        b._talking = asyncio.ensure_future(b.desk.run())
        await until(lambda: core.waiting == 2)
        for ends, begins in zip(running, (waiting, new), strict=False):
            ends.end()
            await until(lambda begins=begins: begins.attempts == [1])  # type: ignore[misc]
        assert (left.attempts, left.over) == ([], [])
        for each in (waiting, new):
            each.end()
        await until(lambda: core.use == 0 and core.waiting == 0)
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


class Storm:
    """Two gateways and their clients, and a core that is lost in all ways, as the dice have it."""

    def __init__(self, core: Core, dice: random.Random) -> None:
        self.core = core
        self.gateways = [Gateway(core, "a"), Gateway(core, "b")]
        self.clients: list[Client] = []
        self.left: set[str] = set()
        self.ended: set[tuple[str, int]] = set()
        self._dice = dice

    def act(self) -> None:
        """One thing happens."""
        what = self._dice.choices(
            [self.arrive, self.recall, self.end, self.fail, self.leave, self.core.restart, self.stumble, self.lose],
            [36, 4, 24, 6, 8, 7, 5, 10],
        )[0]
        what()

    def arrive(self) -> None:
        self.clients.append(self._dice.choice(self.gateways).client(str(len(self.clients))))

    def recall(self) -> None:
        self.clients.append(self._dice.choice(self.gateways).recalled(str(len(self.clients))))

    def end(self, *, retry: bool = False) -> None:
        if running := self._running():
            chosen = self._dice.choice(running)
            self.ended.add((chosen.request.id, chosen.attempts[-1]))
            chosen.end(Outcome.FAILED if retry else Outcome.COMPLETED, retry=retry)

    def fail(self) -> None:
        self.end(retry=True)

    def leave(self) -> None:
        waiting = [each for each in self.clients if not each.attempts and not self._over(each)]
        if waiting:
            chosen = self._dice.choice(waiting)
            self.left.add(chosen.request.id)
            chosen.desk.cancel(chosen.request.id)

    def stumble(self) -> None:
        self.core.down = not self.core.down

    def lose(self) -> None:
        self.core.lose[self._dice.choice(["hello", "tell", "listen"])] += 1

    def calm(self) -> bool:
        """Nothing is lost any more, and all that runs ends; whether everything is over."""
        self.core.down = False
        self.core.ticked()
        for _ in self._running():
            self.end()
        return all(map(self._over, self.clients))

    def _running(self) -> list[Client]:
        return [
            each
            for each in self.clients
            if each.attempts and not self._over(each) and (each.request.id, each.attempts[-1]) not in self.ended
        ]

    def _over(self, client: Client) -> bool:
        return bool(client.over) or client.request.id in self.left


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_lost_everything_ends_once_and_nothing_stays_taken(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        core = Core(tmp_path_factory.mktemp("core"))
        storm = Storm(core, dice)
        for _ in range(80):
            storm.act()
            await asyncio.sleep(dice.choice((0, 0, 0.001)))
        await until(storm.calm)
        await until(lambda: core.use == 0 and core.waiting == 0 and core.hall.open_requests == 0)
        assert all(len(each.over) <= 1 and len(set(each.attempts)) == len(each.attempts) for each in storm.clients)
        # Each attempt that was made has its record, whichever core wrote it; the store takes one of each.
        assert {(each.request_id, each.attempt) for each in core.records} >= storm.ended
        for gateway in storm.gateways:
            await gateway.end()

    run(main)


# -- keys that are revoked


def test_what_waits_at_any_gateway_with_a_key_that_is_revoked_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateways = [Gateway(core, name) for name in "ab"]
        running = [gateways[0].client(str(number), "lost") for number in range(SLOTS)]
        await until(lambda: all(each.attempts for each in running))
        waiting = [gateway.client(f"w{key}", key) for gateway in gateways for key in ("lost", "kept")]
        await until(lambda: core.waiting == 4)
        core.desk.key_revoked("lost", "support")
        await until(lambda: [each.over for each in waiting] == [["key_revoked"], [], ["key_revoked"], []])
        assert core.waiting == 2
        running[0].end()  # what runs goes on
        await until(lambda: sum(len(each.attempts) for each in waiting) == 1)
        for gateway in gateways:
            await gateway.end()

    run(main)


def test_a_node_that_is_cut_off_while_a_key_is_revoked_gets_nothing_with_it(tmp_path: Path) -> None:
    """Its gateway does not know of that, and lets the request in; the core does."""

    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        await until(lambda: gateway.desk.ready()[0])
        core.down = True
        lost, kept = gateway.client("1", "lost"), gateway.client("2", "kept")
        await until(lambda: not gateway.desk.ready()[0])
        core.desk.key_revoked("lost", "support")
        assert (lost.attempts, lost.over) == ([], [])  # without the core nothing is sent anywhere
        core.down = False
        await until(lambda: kept.attempts == [1] and lost.over == ["key_revoked"])
        assert lost.attempts == []
        await gateway.end()

    run(main)


def test_a_core_that_was_restarted_knows_which_keys_are_revoked(tmp_path: Path) -> None:
    async def main() -> None:
        core = Core(tmp_path)
        gateway = Gateway(core, "a")
        running = [gateway.client(str(number), "lost") for number in range(SLOTS)]
        waiting = gateway.client("w", "lost")
        await until(lambda: all(each.attempts for each in running) and core.waiting == 1)
        core.down = True
        core.restart()
        core.desk.key_revoked("lost", "support")  # which the product tells it when it starts
        core.down = False
        await until(lambda: waiting.over == ["key_revoked"])
        for each in running:
            each.end()
        await until(lambda: core.use == 0)
        await gateway.end()

    run(main)
