"""What is written into the audit log and when, and what happens while it cannot be."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import msgspec
import pytest

from commonpool.access import audit
from commonpool.access.audit import COUNT_NS, DUE_MAX, AuditLog, Decided, Verdict
from commonpool.access.callers import LOCAL, NOBODY, Caller, by_admin_key
from commonpool.access.permissions import Permission
from commonpool.store.audit import EMPTY, AuditEntry, Head
from commonpool.store.contract import StoreError
from commonpool.store.memory import MemoryStore

VIEWER = by_admin_key("k1", "viewer")


class World:
    """A log over a store that can be away, at a time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000 * COUNT_NS
        self.store = AwayStore()
        self.heads: list[Head] = []
        self.log = AuditLog(self.store, lambda: self.now, self.heads.append)

    def looked(self, caller: Caller = VIEWER, tenant: str = "", *, allowed: bool = True) -> None:
        self.log.note(Decided(caller, Permission.READ_STATUS, tenant, allowed, ("p:1",), "GET", "/x", "192.0.2.7"))

    def written(self, *, all_of_it: bool = False) -> list[tuple[str, str, str, int]]:
        """What is in the log now: caller, tenant, outcome and how often."""
        asyncio.run(self.log.write(all_of_it=all_of_it))
        chain = self.store.audit_chain(0, 10**6)
        return [(entry.caller, entry.tenant, entry.outcome, entry.count) for entry in chain]


class AwayStore(MemoryStore):
    """A store that cannot be written while it is `away`."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.lost_answers = 0
        self.threads: set[str] = set()
        self.added: Callable[[], object] = lambda: None

    def add_audit(self, entries: Sequence[AuditEntry]) -> Head:
        self.threads.add(threading.current_thread().name)
        if self.away:
            raise StoreError("The disk is full.")
        head = super().add_audit(entries)
        self.added()
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreError("The connection was lost.")
        return head


@pytest.fixture
def world() -> World:
    return World()


def change(caller: Caller = LOCAL, tenant: str = "a") -> Decided:
    return Decided(caller, Permission.GRANT, tenant, allowed=True, method="POST", path="/admin/v1/grants")


def test_the_first_look_is_written_and_what_is_alike_is_counted(world: World) -> None:
    world.looked()
    assert world.written() == [("key:k1", "", "allowed", 1)]
    began = world.now
    for _ in range(58):
        world.now += COUNT_NS // 60
        world.looked()
    assert len(world.written()) == 1
    world.now = began + COUNT_NS
    assert world.written() == [("key:k1", "", "allowed", 1), ("key:k1", "", "allowed", 58)]
    counted = world.store.audit_chain(1, 1)[0]
    assert (counted.at_ns, counted.until_ns) == (began + COUNT_NS // 60, began + 58 * (COUNT_NS // 60))


def test_a_poller_makes_one_entry_a_minute(world: World) -> None:
    for _ in range(60 * 60):
        world.looked()
        asyncio.run(world.log.write())
        world.now += COUNT_NS // 60
    entries = world.written(all_of_it=True)
    assert sum(count for *_, count in entries) == 3600
    assert len(entries) == 61


def test_who_comes_again_later_is_written_at_once_again(world: World) -> None:
    world.looked()
    world.now += 3 * COUNT_NS
    assert len(world.written()) == 1
    world.looked()
    assert world.written() == [("key:k1", "", "allowed", 1)] * 2


def test_another_caller_tenant_action_or_outcome_is_not_alike(world: World) -> None:
    world.looked()
    world.looked(LOCAL)
    world.looked(tenant="a")
    world.looked(tenant="a", allowed=False)
    world.log.note(Decided(VIEWER, Permission.READ_USAGE, "", allowed=True))
    assert world.written() == [
        ("key:k1", "", "allowed", 1),
        ("local", "", "allowed", 1),
        ("key:k1", "a", "allowed", 1),
        ("key:k1", "a", "denied", 1),
        ("key:k1", "", "allowed", 1),
    ]


def test_a_stop_writes_what_is_still_counted(world: World) -> None:
    for _ in range(5):
        world.looked()
    assert world.written(all_of_it=True) == [("key:k1", "", "allowed", 1), ("key:k1", "", "allowed", 4)]


def test_an_entry_has_all_that_is_known(world: World) -> None:
    world.looked(tenant="a")
    world.written()
    (entry,) = world.store.audit_chain(0, 10)
    assert (entry.at_ns, entry.action, entry.method, entry.path) == (world.now, "read_status", "GET", "/x")
    assert (entry.peer, entry.policies) == ("192.0.2.7", ("p:1",))


def test_each_change_is_an_entry_before_it_is_made(world: World) -> None:
    for _ in range(3):
        asyncio.run(world.log.keep(change()))
    assert [entry.action for entry in world.store.audit_chain(0, 10)] == ["grant"] * 3


def test_a_change_that_cannot_be_written_is_not_to_be_made(world: World) -> None:
    world.store.away = True
    with pytest.raises(StoreError, match="disk is full"):
        asyncio.run(world.log.keep(change()))


def test_the_loop_is_not_held_up(world: World) -> None:
    world.looked()
    world.written()
    asyncio.run(world.log.keep(change()))
    assert threading.main_thread().name not in world.store.threads


def test_what_cannot_be_written_now_is_written_later_and_said_meanwhile(world: World) -> None:
    world.store.away = True
    world.looked()
    assert world.written() == []
    assert world.log.trouble == "The audit log cannot be written, so nothing can be changed: The disk is full."
    world.looked(allowed=False)
    world.store.away = False
    assert world.written() == [("key:k1", "", "allowed", 1), ("key:k1", "", "denied", 1)]
    assert world.log.trouble is None


def test_what_waits_is_bounded_and_what_is_lost_is_counted(world: World) -> None:
    world.store.away = True
    for number in range(DUE_MAX + 25):
        world.looked(tenant=f"t{number}")
    world.looked(tenant="t0")
    assert world.written(all_of_it=True) == []
    world.store.away = False
    entries = world.written()
    assert len(entries) == DUE_MAX + 1
    assert entries[-1] == ("", "", "lost", 26)
    assert len(world.written()) == DUE_MAX + 1


def test_what_a_caller_sends_neither_fools_a_screen_nor_leaks_a_key(world: World) -> None:
    secret = "cp_0123456789_" + "a" * 28
    path = f"/admin/v1/keys/{secret}/\x1b[2J\x00\udc80" + "x" * 500
    world.log.note(Decided(NOBODY, Permission.REVOKE_KEYS, "", allowed=False, path=path))
    world.written()
    (entry,) = world.store.audit_chain(0, 10)
    assert entry.path.startswith("/admin/v1/keys/cp_0123456789_***/\ufffd[2J\ufffd\ufffdxxx")
    assert len(entry.path) == audit.TEXT_MAX + 1
    assert entry.path.isprintable()


def test_what_was_cut_off_while_it_runs_is_noticed(world: World) -> None:
    for _ in range(3):
        asyncio.run(world.log.keep(change()))
    assert asyncio.run(world.log.verify()) == Verdict((), world.store.audit_head(), more=False)
    world.store._audit.pop()
    verdict = asyncio.run(world.log.verify())
    assert [fault.number for fault in verdict.faults] == [3]
    assert verdict.head.number == 2


def test_what_was_cut_off_is_noticed_though_the_log_goes_on(world: World) -> None:
    for _ in range(3):
        asyncio.run(world.log.keep(change()))
    world.store._audit[1:] = []
    world.now += 1
    for _ in range(3):
        asyncio.run(world.log.keep(change()))
    assert world.log.tampered is not None
    assert "entry 3 is not there as it was written" in world.log.tampered
    verdict = asyncio.run(world.log.verify())
    assert [fault.sentence for fault in verdict.faults] == [
        "Entry 3 is another one than the head that was kept: it was written anew."
    ]
    assert verdict.head.number == 4


def test_a_commit_whose_answer_was_lost_is_no_harm(world: World) -> None:
    asyncio.run(world.log.keep(change()))
    world.store.lost_answers = 1
    with pytest.raises(StoreError):
        asyncio.run(world.log.keep(change()))
    asyncio.run(world.log.keep(change()))
    assert world.log.tampered is None
    assert asyncio.run(world.log.verify()) == Verdict((), world.store.audit_head(), more=False)
    assert world.store.audit_head().number == 3


def test_a_long_log_is_verified_in_steps(world: World) -> None:
    entries = [AuditEntry(number, number, 1, "local", "grant", "", "allowed") for number in range(12)]
    middle = world.store.add_audit(entries[:7])
    last = world.store.add_audit(entries[7:])
    store = world.store
    for at in (4, 11):
        store._audit[at] = msgspec.structs.replace(store._audit[at], caller="other")
    log = AuditLog(store, lambda: world.now)
    found: list[tuple[list[int], int, bool]] = []
    head, more = EMPTY, True
    while more:
        step = asyncio.run(log.verify(head, [middle, last], limit=5))
        head, more = step.head, step.more
        found.append(([fault.number for fault in step.faults], head.number, more))
    assert found == [([5], 5, True), ([], 10, True), ([12], 12, False)]


def test_a_log_of_before_goes_on(world: World) -> None:
    asyncio.run(world.log.keep(change()))
    again = AuditLog(world.store, lambda: world.now)
    world.store._audit.clear()
    assert [fault.number for fault in asyncio.run(again.verify()).faults] == [1]


def test_the_head_is_told_once_an_hour_while_the_log_grows(world: World) -> None:
    began = world.now
    for minute in range(150):
        world.now = began + minute * COUNT_NS
        if minute < 130:
            asyncio.run(world.log.keep(change()))
        asyncio.run(world.log.write())
    assert [head.number for head in world.heads] == [1, 61, 121]


def test_it_writes_by_itself_until_it_is_stopped(world: World) -> None:
    async def run() -> None:
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        world.store.added = lambda: loop.call_soon_threadsafe(written.set)
        running = asyncio.ensure_future(world.log.run())
        world.looked()
        await written.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert world.store.audit_head().number == 1
