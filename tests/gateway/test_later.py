"""Given a client that takes its answer later, when its tenant's max_wait cannot be kept, then it is told where it will
find the answer, and finds it there: it and nobody else.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from commonpool.access.secrets import MasterKey, Masters, Vault
from commonpool.config.structs import Address, Config
from commonpool.control.later import AT_DESK, AT_ONCE, KEEP_NS, WINDOW_NS, Later
from commonpool.core.effects import Refuse
from commonpool.core.events import Arrived
from commonpool.core.machine import Machine
from commonpool.core.model import Limits, Outcome, Reason, Request, UsageRecord
from commonpool.core.records import unanswered
from commonpool.gateway.desk import Waiter
from commonpool.gateway.later import Errands
from commonpool.gateway.server import Gateway
from commonpool.observe.spans import payload, spans
from commonpool.observe.traces import Ended, Traces
from commonpool.store.contract import StoreError
from commonpool.store.later import LaterHead, LaterText, SealedLater
from commonpool.store.memory import MemoryStore
from commonpool.store.prompts import Spoken
from tests.gateway.fakes import (
    KEY,
    SECOND,
    Answer,
    FakeDesk,
    FakeEngine,
    World,
    chat,
    chat_answer,
    config,
    get,
    post,
    principal,
    run,
    until,
)
from tests.leaks import MARK
from tests.observe.collector import Received, decoded

PREFER = "prefer: respond-async\r\n"
OTHER_APP, OTHER_TENANT, SAME_APP, BOUNDED = (b"Bearer cp_" + name for name in (b"app", b"tenant", b"same", b"bounded"))
KEYS = {
    KEY: principal(),
    SAME_APP: principal(key_id="k4"),
    BOUNDED: principal(key_id="k5", sizes=Limits(tokens_out_max=7)),
    OTHER_APP: principal(key_id="k2", app="portal"),
    OTHER_TENANT: principal(key_id="k3", tenant="research", app="helpdesk"),
}
PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
CONSUMER = 5
PEAK = (Reason.PROMISE, "Tenant support has 130.0 s of work waiting. Try again in 10 s.", 10 * SECOND)


class Store(MemoryStore):
    broken = False
    keeps = False  # it deletes nothing

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()  # what is read waits for it
        self.gate.set()
        self.readers = self.readers_max = 0
        self._counting = threading.Lock()

    def later(self, id_: str) -> SealedLater | None:
        with self._counting:
            self.readers += 1
            self.readers_max = max(self.readers_max, self.readers)
        self.gate.wait()
        with self._counting:
            self.readers -= 1
        return super().later(id_)

    def delete_later(self, id_: str) -> bool:
        if self.keeps:
            raise StoreError("The disk is full.")
        return super().delete_later(id_)

    def add_later(self, entry: SealedLater) -> None:
        if self.broken:
            raise StoreError("The disk is full.")
        super().add_later(entry)

    def end_later(self, entry: SealedLater) -> bool:
        if self.broken:
            raise StoreError("The disk is full.")
        return super().end_later(entry)

    @property
    def kept(self) -> dict[str, SealedLater]:
        return self._later


class Grown(Request, frozen=True, gc=False):
    """A request of a later version, which knows more of it."""

    added: int = 0


class Upgraded(Store):
    """A store that an earlier version wrote."""

    def __init__(self, before: Store) -> None:
        super().__init__()
        self._later = before.kept

    def laters(self) -> tuple[LaterHead, ...]:
        return tuple(map(_grown, super().laters()))

    def later(self, id_: str) -> SealedLater | None:
        found = super().later(id_)
        return None if found is None else msgspec.structs.replace(found, head=_grown(found.head))


def _grown(head: LaterHead) -> LaterHead:
    return msgspec.structs.replace(head, request=Grown(**msgspec.structs.asdict(head.request)))


class Desk(FakeDesk):
    """As the core: what is refused for its promise is handed back where its client takes its answer later."""

    def __init__(self) -> None:
        super().__init__()
        self.comings: list[Arrived] = []
        self.turned_away: tuple[Reason, str, int | None] | None = None
        self.full = False  # what comes again waits

    def submit(self, request: Request, waiter: Waiter) -> None:
        if self.refusal is None:
            super().submit(request, waiter)
            return
        self.requests.append(request)
        later = request.later and self.refusal[0] is Reason.PROMISE
        waiter.refused(Refuse(request.id, *self.refusal, later))

    def again(self, event: Arrived, waiter: Waiter) -> None:
        self.comings.append(event)
        if self.turned_away is not None:
            waiter.refused(Refuse(event.request.id, *self.turned_away))
            return
        self.waiting[event.request.id] = waiter
        if not self.full:
            self.dispatch(event.request.id, event.attempts + 1)


class Core:
    """What keeps records."""

    def __init__(self, configured: Config) -> None:
        self.machine = Machine(configured.policy)
        self.records: list[UsageRecord] = []

    def settle(self, record: UsageRecord) -> None:
        self.records.append(record)


class Peak:
    """A gateway at its peak, what it keeps, and raw connections to it."""

    def __init__(self, store: Store, *, traced: bool, **bounds: int) -> None:
        self.store = store
        self.traced: list[Ended] = []
        self._traces = Traces(self.traced.append, 1000, lambda: self.now) if traced else None
        self.now = 1_700_000_000 * SECOND
        self.core = Core(config())
        self.desk = Desk()
        self.desk.refusal = PEAK
        self.past: dict[str, list[UsageRecord]] = {}
        self.settled = True
        self.heard: list[Spoken] = []
        self.vault = Vault(store, Masters(MasterKey(b"1" * 32)), lambda: self.now)
        self.later = Later(
            store,
            self.vault,
            self.core,
            lambda: self.now,
            self._spawn,
            attempts=self._attempts,
            settled=lambda: self.settled,
            **bounds,
        )
        self.engine = FakeEngine()
        self.world: World

    def _spawn(self, work: Any) -> None:
        self.errands.spawn(work)

    async def _attempts(self, id_: str) -> list[UsageRecord]:
        return self.past.get(id_, [])

    async def start(self, configured: Config) -> None:
        await self.engine.start()
        self.desk.target = self.engine.target()
        self.errands = Errands(self.later, self.desk)
        monotonic = [SECOND]
        gateway = Gateway(
            configured,
            self.desk,
            lambda authorization, _peer: KEYS.get(authorization),
            clock=lambda: self.now,
            monotonic=lambda: monotonic[0],
            listener=self,
            later=self.errands,
            traces=self._traces,
        )
        port = await gateway.start(Address("127.0.0.1", 0))
        self.world = World(gateway, self.desk, self.engine, port, monotonic)
        self.later.begin()

    def hear(self, spoken: Spoken) -> None:
        self.heard.append(spoken)

    def lose(self, tenant: str, count: int) -> None:
        raise AssertionError(tenant, count)

    async def ask(self, headers: str = PREFER, **more: Any) -> Answer:
        return await (await self.world.client()).ask(post(chat(**more), headers=headers))

    async def taken(self, **more: Any) -> str:
        """The place of a request that was taken."""
        answer = await self.ask(**more)
        assert answer.status == 202, answer.body
        return answer.headers["location"]

    async def look(self, place: str, method: str = "GET", key: bytes = KEY) -> Answer:
        return await (await self.world.client()).ask(get(place, method, key=key))

    async def answered(self, place: str) -> Answer:
        await self.later.round()
        while (answer := await self.look(place)).status == 202:
            assert int(answer.headers["retry-after"]) > 0
        return answer


def configured() -> Config:
    return msgspec.structs.replace(config(), later=("support",))


@contextlib.asynccontextmanager
async def peak(
    conf: Config | None = None, store: Store | None = None, *, traced: bool = False, **bounds: int
) -> AsyncIterator[Peak]:
    here = Peak(store or Store(), traced=traced, **bounds)
    await here.start(conf or configured())
    try:
        yield here
    finally:
        here.store.gate.set()
        await here.world.close()


def at_peak(
    test: Callable[[Peak], Awaitable[None]], conf: Config | None = None, *, traced: bool = False, **bounds: int
) -> None:
    async def main() -> None:
        async with peak(conf, None, traced=traced, **bounds) as here:
            await test(here)

    run(main)


def test_it_is_taken_waits_and_is_found_at_its_place() -> None:
    async def test(here: Peak) -> None:
        answer = await here.ask()
        id_ = answer.json["id"]
        assert (answer.status, answer.headers["location"]) == (202, f"/v1/later/{id_}")
        assert answer.headers["preference-applied"] == "respond-async"
        assert (answer.headers["x-commonpool-later"], answer.headers["x-request-id"]) == ("waiting", id_)
        assert int(answer.headers["retry-after"]) >= 1
        taken_s = here.now // SECOND
        assert answer.json == {
            "id": id_,
            "object": "later",
            "status": "waiting",
            "model": "tiny",
            "created_at": taken_s,
            "expires_at": taken_s + WINDOW_NS // SECOND,
        }
        assert (await here.look(f"/v1/later/{id_}")).json["status"] == "waiting"

        found = await here.answered(f"/v1/later/{id_}")
        assert (found.status, found.headers["content-type"]) == (200, "application/json")
        assert found.json["choices"][0]["message"]["content"] == "hi there"
        assert (found.headers["x-commonpool-later"], found.headers["x-request-id"]) == ("answered", id_)
        (event,) = here.desk.comings
        assert (event.request.endpoint, event.request.tenant, event.attempts) == ("batch", "support", 0)
        assert [ended.outcome for ended in here.desk.ended_events] == [Outcome.COMPLETED]
        assert (await here.look(f"/v1/later/{id_}")).body == found.body  # a response that was lost is fetched again

    at_peak(test)


def test_what_is_kept_is_encrypted() -> None:
    async def test(here: Peak) -> None:
        here.engine.script = lambda call: call.answer(chat_answer(MARK))
        place = await here.taken()
        (kept,) = here.store.kept.values()
        assert MARK.encode() not in msgspec.json.encode(kept)
        assert MARK.encode() not in kept.sealed
        await here.answered(place)
        (kept,) = here.store.kept.values()
        assert kept.head.status == 200
        assert MARK.encode() not in kept.sealed

    at_peak(test)


def test_the_engine_is_asked_for_a_whole_answer_where_a_stream_was_wanted() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken(stream=True, stream_options={"include_usage": True}, seed=4)
        assert (await here.answered(place)).json["object"] == "chat.completion"
        (call,) = here.engine.calls
        assert call.json == {"model": "served/tiny", "messages": chat()["messages"], "seed": 4}

    at_peak(test)


@pytest.mark.parametrize("prefer", ["RESPOND-ASYNC", 'wait=10, respond-async; x="y"', 'a="b, c", respond-async'])
def test_how_a_client_may_say_it(prefer: str) -> None:
    async def test(here: Peak) -> None:
        assert (await here.ask(f"prefer: {prefer}\r\n")).status == 202

    at_peak(test)


@pytest.mark.parametrize(
    ("headers", "tenants", "refusal"),
    [
        ("", ("support",), PEAK),
        ("prefer: wait=10\r\n", ("support",), PEAK),
        ('prefer: note="respond-async"\r\n', ("support",), PEAK),
        (PREFER, (), PEAK),
        (PREFER, ("research",), PEAK),
        (PREFER, ("support",), (Reason.QUEUE_FULL, "Full.", SECOND)),
        (PREFER, ("support",), (Reason.TOKENS_PER_MINUTE, "Used.", SECOND)),
        (PREFER, ("support",), (Reason.BUDGET, "Spent.", None)),
    ],
)
def test_who_does_not_ask_for_it_or_may_not_is_refused_as_ever(
    headers: str, tenants: tuple[str, ...], refusal: tuple[Reason, str, int | None]
) -> None:
    async def test(here: Peak) -> None:
        here.desk.refusal = refusal
        answer = await here.ask(headers)
        assert (answer.status, answer.error["message"]) == (429, refusal[1])
        assert "preference-applied" not in answer.headers
        assert not here.store.kept

    at_peak(test, msgspec.structs.replace(config(), later=tenants))


def test_what_can_be_answered_now_is_answered_now() -> None:
    async def test(here: Peak) -> None:
        here.desk.refusal = None
        answer = await here.ask()
        assert (answer.status, "x-commonpool-later" in answer.headers) == (200, False)
        assert not here.store.kept

    at_peak(test)


def test_nobody_else_sees_whether_it_exists() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        for key in (OTHER_APP, OTHER_TENANT):
            for method in ("GET", "DELETE"):
                theirs = await here.look(place, method, key)
                nothing = await here.look(place[:-1] + "zz", method, key)
                assert theirs.status == nothing.status == 404
                assert theirs.error["message"].replace(place, "") == nothing.error["message"].replace(
                    place[:-1] + "zz", ""
                )
        assert (await here.look(place, key=SAME_APP)).status == 202
        assert (await here.look(place, "POST")).status == 405
        assert (await here.look(place, key=b"Bearer nobody")).status == 401

    at_peak(test)


def test_it_may_be_cancelled_while_it_is_kept_waits_or_runs_and_forgotten_afterwards() -> None:
    async def test(here: Peak) -> None:
        # Kept.
        place = await here.taken()
        gone = await here.look(place, "DELETE")
        assert (gone.status, gone.json) == (200, {"id": place.rsplit("/", 1)[1], "object": "later", "deleted": True})
        assert (await here.look(place)).status == (await here.look(place, "DELETE")).status == 404
        await here.later.round()
        assert not here.desk.comings
        # At the desk.
        here.desk.full = True
        place = await here.taken()
        await here.later.round()
        assert (await here.look(place, "DELETE")).status == 200
        assert here.desk.cancelled == [place.rsplit("/", 1)[1]]
        assert [(record.outcome, record.endpoint) for record in here.core.records] == 2 * [(Outcome.CANCELLED, "batch")]
        # Running.
        here.desk.full = False
        here.engine.script = lambda _call: None
        place = await here.taken()
        await here.later.round()
        await until(lambda: len(here.engine.calls) == 1)
        assert (await here.look(place)).json["status"] == "running"
        assert (await here.look(place, "DELETE")).status == 200
        await here.engine.calls[0].lost.wait()
        assert [event.outcome for event in here.desk.ended_events] == [Outcome.CANCELLED]
        # Answered.
        here.engine.script = lambda call: call.answer(chat_answer())
        place = await here.taken()
        assert (await here.answered(place)).status == 200
        assert (await here.look(place, "DELETE")).status == 200
        assert (await here.look(place)).status == 404
        assert not here.store.kept
        assert here.world.gateway.held == 0

    at_peak(test)


def test_an_error_of_the_engine_is_the_answer() -> None:
    async def test(here: Peak) -> None:
        here.engine.script = lambda call: call.answer(b'{"error":{"message":"too long"}}', 400)
        found = await here.answered(await here.taken())
        assert (found.status, found.error["message"]) == (400, "too long")
        assert found.headers["x-should-retry"] == "false"

        here.engine.script = lambda call: call.close()
        found = await here.answered(await here.taken())
        assert (found.status, found.error["code"]) == (502, "engine_failed")
        assert here.desk.waiting == {}

    at_peak(test)


def test_what_cannot_run_now_is_tried_again_and_what_never_can_is_told() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        here.desk.turned_away = (Reason.REQUESTS_PER_MINUTE, "Used.", 30 * SECOND)
        await here.later.round()
        await here.later.round()
        assert len(here.desk.comings) == 1
        assert int((await here.look(place)).headers["retry-after"]) == 30
        here.now += 30 * SECOND
        here.desk.turned_away = None
        assert (await here.answered(place)).status == 200
        assert not here.core.records

        place = await here.taken()
        here.desk.turned_away = (Reason.UNKNOWN_MODEL, "Model tiny does not exist.", None)
        found = await here.answered(place)
        assert (found.status, found.error["message"]) == (404, "Model tiny does not exist.")
        (record,) = here.core.records
        assert (record.outcome, record.status, record.reason) == (Outcome.REFUSED, 404, Reason.UNKNOWN_MODEL)

    at_peak(test)


def test_what_is_not_answered_in_its_window_ends_with_an_error_and_a_record() -> None:
    async def test(here: Peak) -> None:
        here.desk.full = True
        place = await here.taken()
        await here.later.round()
        here.now += WINDOW_NS
        await here.later.round()
        assert here.desk.cancelled == [place.rsplit("/", 1)[1]]
        found = await here.look(place)
        assert (found.status, found.error["code"]) == (504, "later_missed")
        assert found.error["message"].startswith("It could not be answered within 24 h.")
        (record,) = here.core.records
        assert (record.outcome, record.reason, record.total_ns) == (Outcome.REFUSED, Reason.PROMISE, WINDOW_NS)
        here.now += KEEP_NS
        await here.later.round()
        assert (await here.look(place)).status == 404
        assert not here.store.kept

    at_peak(test)


def test_few_are_at_the_desk_at_a_time_in_the_order_in_which_they_came() -> None:
    async def test(here: Peak) -> None:
        here.desk.full = True
        places = [await here.taken() for _ in range(5)]
        ids = [place.rsplit("/", 1)[1] for place in places]
        await here.later.round()
        assert [event.request.id for event in here.desk.comings] == ids[:AT_DESK]
        for n in range(5):
            here.desk.dispatch(ids[n])
            await here.later.round()
            assert [event.request.id for event in here.desk.comings] == ids[: n + 1 + AT_DESK]
        for place in places:
            assert (await here.answered(place)).status == 200
        assert here.world.gateway.held == 0

    at_peak(test)


def test_a_tenant_keeps_so_many_and_so_much_and_is_refused_beyond() -> None:
    async def count(here: Peak) -> None:
        for _ in range(2):
            await here.taken()
        assert (await here.ask()).status == 429
        assert not here.desk.requests[-1].later
        await here.later.forget(next(iter(here.store.kept)))
        assert (await here.ask()).status == 202

    async def size(here: Peak) -> None:
        assert (await here.ask()).status == 202
        assert (await here.ask(user="x" * 3000)).status == 429
        assert (await here.ask()).status == 202

    at_peak(count, count_max=2)
    at_peak(size, bytes_max=2000)


def test_what_cannot_be_kept_is_refused_and_not_taken() -> None:
    async def test(here: Peak) -> None:
        here.store.broken = True
        assert (await here.ask()).status == 429
        assert [request.later for request in here.desk.requests] == [True, False]
        here.store.broken = False
        assert (await here.ask()).status == 202

    at_peak(test)


def test_an_answer_that_cannot_be_kept_now_is_kept_as_soon_as_it_can_and_holds_up_no_slot() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        here.store.broken = True
        await here.later.round()
        await until(lambda: bool(here.desk.ended_events))
        assert str(here.later.trouble).startswith("Answers for later cannot be kept: ")
        assert (await here.look(place)).json["status"] == "running"
        here.store.broken = False
        assert (await here.answered(place)).status == 200
        assert str(here.later.trouble) == "None"
        assert [event.outcome for event in here.desk.ended_events] == [Outcome.COMPLETED]

    at_peak(test)


def test_a_prompt_log_has_it_once_with_its_answer() -> None:
    async def test(here: Peak) -> None:
        here.world.gateway.log_prompts(frozenset({"support"}))
        place = await here.taken()
        answer = await here.answered(place)
        (spoken,) = here.heard
        assert spoken.head.request_id == place.rsplit("/", 1)[1]
        assert MARK.encode() in spoken.asked
        assert spoken.answered.endswith(answer.body)

    at_peak(test)


def test_a_client_that_is_gone_before_it_hears_of_its_place_leaves_nothing() -> None:
    async def test(here: Peak) -> None:
        client = await here.world.client()
        await until(lambda: len(here.world.gateway.connections) == 1)
        (connection,) = here.world.gateway.connections
        connection.data_received(post(chat(), headers=PREFER))
        connection.cut()
        connection.connection_lost(None)
        await until(lambda: bool(here.core.records))
        assert [record.outcome for record in here.core.records] == [Outcome.CANCELLED]
        assert not here.store.kept
        client.abort()

    at_peak(test)


def test_that_it_cannot_be_deleted_then_is_told_to_the_log() -> None:
    async def test(here: Peak) -> None:
        client = await here.world.client()
        await until(lambda: len(here.world.gateway.connections) == 1)
        (connection,) = here.world.gateway.connections
        here.store.keeps = True
        with capture_logs() as logs:
            connection.data_received(post(chat(), headers=PREFER))
            connection.cut()
            connection.connection_lost(None)
            await until(lambda: bool(here.store.kept) and not here.errands._tasks)
        assert [line["event"] for line in logs] == ["what nobody waits for cannot be deleted"]
        client.abort()

    at_peak(test)


def test_an_answer_is_counted_before_it_is_read_and_until_it_is_sent() -> None:
    async def test(here: Peak) -> None:
        gateway = here.world.gateway
        place = await here.taken()
        found = await here.answered(place)
        size = next(iter(here.store.kept.values())).head.size
        held_max, gateway.held_max = gateway.held_max, 2 * size - 1
        here.store.readers_max = 0
        refused = await here.look(place)
        assert (refused.status, refused.error["code"], here.store.readers_max) == (503, "memory", 0)
        gateway.held_max = held_max
        here.store.gate.clear()
        client = await here.world.client()
        client.send(get(place))
        await until(lambda: here.store.readers == 1)
        assert gateway.held == size
        here.store.gate.set()
        assert (await client.answer()).body == found.body
        await until(lambda: gateway.held == 0)

    at_peak(test)


def test_few_of_a_tenant_are_read_at_a_time_and_nothing_else_waits_for_them() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        await here.answered(place)
        here.store.readers_max = 0
        here.store.gate.clear()
        clients = [await here.world.client() for _ in range(40)]
        for client in clients:
            client.send(get(place))
        await until(lambda: sum(each.exchange is not None for each in here.world.gateway.connections) == 40)
        await until(lambda: here.store.readers == AT_ONCE)
        await asyncio.to_thread(here.store.laters)
        here.store.gate.set()
        assert {(await client.answer()).status for client in clients} == {200}
        assert here.store.readers_max == AT_ONCE

    at_peak(test)


async def filled(here: Peak) -> list[str]:
    """The places of four, of which two have answers that fill what their tenant may keep."""
    here.engine.script = lambda call: call.answer(chat_answer("x" * 3000))
    here.desk.full = True
    places = [await here.taken() for _ in range(4)]
    await here.later.round()
    for place in places[:2]:
        here.desk.dispatch(place.rsplit("/", 1)[1])
    for place in places[:2]:
        while (await here.look(place)).status == 202:
            pass
    here.desk.full = False
    await here.later.round()
    assert len(here.desk.comings) == AT_DESK == 2
    return places


def test_nothing_starts_while_a_tenants_answers_fill_what_it_may_keep() -> None:
    async def test(here: Peak) -> None:
        places = await filled(here)
        assert (await here.look(places[2])).json["status"] == "waiting"
        for place in places[:2]:
            await here.look(place, "DELETE")
        assert (await here.answered(places[2])).status == 200

    at_peak(test, bytes_max=3000)


def test_who_keeps_too_much_for_too_long_is_told() -> None:
    async def test(here: Peak) -> None:
        places = await filled(here)
        here.now += WINDOW_NS
        await here.later.round()
        missed = await here.look(places[2])
        assert (missed.status, missed.error["code"]) == (504, "later_missed")
        assert missed.error["message"].endswith("delete answers that were fetched.")

    at_peak(test, bytes_max=3000)


def test_one_that_nobody_can_ask_is_lost_and_holds_up_no_other() -> None:
    async def test(here: Peak) -> None:
        request = Request("odd", "support", "helpdesk", "tiny", "interactive", "batch", 5)
        await here.later.keep(request, LaterText("chat", b"no JSON", Limits()))
        behind = [await here.taken() for _ in range(AT_DESK + 1)]
        lost = await here.answered("/v1/later/odd")
        assert (lost.status, lost.error["code"], lost.headers["x-should-retry"]) == (500, "later_lost", "false")
        assert [(await here.answered(place)).status for place in behind] == [200] * len(behind)
        assert [(record.request_id, record.outcome) for record in here.core.records] == [("odd", Outcome.FAILED)]

    at_peak(test)


def test_who_deletes_its_prompt_log_still_has_what_is_kept_for_later() -> None:
    async def test(here: Peak) -> None:
        here.vault.seal("support", (), b"of its prompt log")
        answered, waiting = await here.taken(), await here.taken()
        body = (await here.answered(answered)).body
        here.vault.forget("support")
        assert (await here.look(answered)).body == body
        assert (await here.answered(waiting)).status == 200

    at_peak(test)


def test_what_does_not_open_any_more_is_lost_for_good() -> None:
    async def test(here: Peak) -> None:
        answered = await here.taken()
        await here.answered(answered)
        waiting = await here.taken()
        for key in here.store.data_keys():
            here.vault.forget(key.tenant)
        for place in (answered, waiting):
            lost = await here.answered(place)
            assert (lost.status, lost.error["code"], lost.headers["x-should-retry"]) == (500, "later_lost", "false")

    at_peak(test)


def test_what_was_kept_before_an_upgrade_is_done_and_found_behind_it() -> None:
    async def main() -> None:
        before = Store()
        async with peak(store=before) as here:
            answered = await here.taken()
            body = (await here.answered(answered)).body
            waiting = await here.taken()
        after = Upgraded(before)
        for key in before.data_keys():
            after.add_data_key(key)
        async with peak(store=after) as here:
            assert (await here.look(answered)).body == body
            assert (await here.answered(waiting)).status == 200

    run(main)


def test_after_a_restart_the_rest_is_done_and_attempts_go_on() -> None:
    async def main() -> None:
        store = Store()
        async with peak(store=store) as here:
            here.desk.full = True
            places = [await here.taken() for _ in range(3)]
            await here.later.round()
        ids = [place.rsplit("/", 1)[1] for place in places]
        async with peak(store=store) as here:
            here.settled = False
            here.past[ids[0]] = [_record(ids[0], 1, Outcome.FAILED)]
            here.past[ids[1]] = [_record(ids[1], 1, Outcome.COMPLETED)]
            await here.later.round()
            assert not here.desk.comings  # what ran before may still get its record
            here.settled = True
            assert (await here.answered(places[0])).status == 200
            lost = await here.answered(places[1])  # its answer was charged, and is not made again
            assert (lost.status, lost.error["code"]) == (500, "later_lost")
            assert (await here.answered(places[2])).status == 200
            assert [(event.request.id, event.attempts) for event in here.desk.comings] == [(ids[0], 1), (ids[2], 0)]
        async with peak(store=store) as here:
            assert [(await here.look(place)).status for place in places] == [200, 500, 200]

    run(main)


def _record(id_: str, attempt: int, outcome: Outcome) -> UsageRecord:
    request = Request(id_, "support", "helpdesk", "tiny", "interactive", "batch", 5)
    return unanswered(Machine(config().policy).state, request, attempt - 1, 1, outcome, 200, "", 2)


def test_when_the_gateway_stops_what_runs_may_end_and_the_rest_is_left_for_the_next_start() -> None:
    async def test(here: Peak) -> None:
        here.engine.script = lambda _call: None
        place = await here.taken()
        await here.later.round()
        await until(lambda: len(here.engine.calls) == 1)
        here.desk.full = True
        await here.taken()
        await here.later.round()
        await here.world.gateway.drain(0)
        assert [(event.outcome, event.status) for event in here.desk.ended_events] == [(Outcome.FAILED, 503)]
        assert len(here.desk.cancelled) == 1
        await here.later.round()
        assert [kept.head.status for kept in here.store.kept.values()] == [0, 0]
        assert place.rsplit("/", 1)[1] in here.store.kept
        assert not here.core.records

    at_peak(test)


def test_what_its_key_may_have_bounds_it() -> None:
    async def test(here: Peak) -> None:
        client = await here.world.client()
        answer = await client.ask(post(chat(), headers=PREFER, key=BOUNDED))
        await here.answered(answer.headers["location"])
        assert here.engine.calls[0].json["max_tokens"] == 7

    at_peak(test)


def shown(here: Peak) -> list[Received]:
    """What was traced."""
    return decoded(payload([span for each in here.traced for span in spans(each)], {}))


def test_it_is_one_span_below_its_clients_from_when_it_was_taken() -> None:
    async def test(here: Peak) -> None:
        taken_ns = here.now
        answer = await here.ask(f"{PREFER}traceparent: {PARENT}\r\ntracestate: vendor=1\r\n")
        here.now += 5 * SECOND
        # what cannot run yet is no span
        here.desk.turned_away = (Reason.REQUESTS_PER_MINUTE, "Used.", SECOND)
        await here.later.round()
        here.now += SECOND
        here.desk.turned_away = None
        assert here.traced == []
        assert (await here.answered(answer.headers["location"])).status == 200
        root, queue, engine = shown(here)
        assert (root.name, root.kind, root.parent_id) == ("chat tiny", CONSUMER, PARENT[36:52])
        assert (root.trace_id, root.state) == (PARENT[3:35], "vendor=1")
        assert (queue.parent_id, engine.parent_id) == (root.span_id, root.span_id)
        assert here.engine.calls[-1].headers["traceparent"] == f"00-{PARENT[3:35]}-{engine.span_id}-01"
        assert root.attributes["commonpool.later"] == "answered"
        assert (here.traced[0].arrived_ns, here.traced[0].ended_ns) == (taken_ns, here.now)

    at_peak(test, traced=True)


def test_what_never_can_run_is_a_span_of_its_error() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        here.desk.turned_away = (Reason.UNKNOWN_MODEL, "Model tiny does not exist.", None)
        assert (await here.answered(place)).status == 404
        (root, *_) = shown(here)
        assert (root.kind, root.attributes["http.response.status_code"]) == (CONSUMER, 404)
        assert len(here.traced) == 1

    at_peak(test, traced=True)


def test_what_is_left_for_the_next_start_is_no_span_yet() -> None:
    async def test(here: Peak) -> None:
        here.desk.full = True
        await here.taken()
        await here.later.round()
        await here.world.gateway.drain(0)
        assert here.traced == []

    at_peak(test, traced=True)


def test_a_client_that_does_not_trace_is_passed_on_to_the_engine() -> None:
    async def test(here: Peak) -> None:
        parent = PARENT[:-2] + "00"
        answer = await here.ask(f"{PREFER}traceparent: {parent}\r\n")
        assert (await here.answered(answer.headers["location"])).status == 200
        assert here.engine.calls[-1].headers["traceparent"] == parent
        assert here.traced == []

    at_peak(test, traced=True)


def test_what_is_kept_is_counted_by_tenant_until_it_is_forgotten() -> None:
    async def test(here: Peak) -> None:
        place = await here.taken()
        ((count, size),) = here.later.kept.values()
        assert (list(here.later.kept), count) == (["support"], 1)
        assert size == sum(each.head.size for each in here.store.kept.values()) > 0
        assert (await here.answered(place)).status == 200
        assert here.later.kept["support"] == (1, sum(each.head.size for each in here.store.kept.values()))
        assert here.later.kept["support"][1] != size  # it is the answer now
        await here.look(place, "DELETE")
        assert here.later.kept["support"] == (0, 0)

    at_peak(test)
