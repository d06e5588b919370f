"""The desk: effects in order, records before answers, nothing held after the client is gone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from commonpool.core.effects import Effect, Refuse
from commonpool.core.events import DevicesChanged, Ended, Event, Granted
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Reason, Replica, Request, Usage, UsageRecord, Wait
from commonpool.engines.base import Adapter, Target
from commonpool.gateway.desk import CoreDesk
from commonpool.store.journal import Journal, JournalError
from tests.core.worlds import CONTEXT, policy, tenant


def nothing() -> None:
    """What a waiter does when it has nothing to do."""


class Note:
    """A waiter that writes down what it hears, and may act on it."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.request = Request(name, "a", "app", "m", "interactive", "chat", 10, 10)
        self.heard = heard
        self.on_dispatch: Callable[[], object] = nothing
        self.refusal: Refuse | None = None

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...]) -> None:
        assert wait_ns >= sum(wait.ns for wait in waits)
        self.heard.append(f"{self.name} to {target.replica_id} #{attempt}")
        self.on_dispatch()

    def refused(self, refusal: Refuse) -> None:
        self.refusal = refusal
        self.heard.append(f"{self.name} refused")

    def failed(self) -> None:
        self.heard.append(f"{self.name} failed")


class FullJournal(Journal):
    """A journal whose disk is full while `full` is set."""

    full = False

    def append(self, record: UsageRecord) -> None:
        if self.full:
            self.healthy = False
            raise JournalError("The disk is full.")
        super().append(record)

    def probe(self) -> bool:
        self.healthy = not self.full
        return self.healthy


class Room:
    """A desk with one replica of four slots, two of which tenant `a` may use."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[str] = []
        self.seen: list[UsageRecord] = []
        self.journal = FullJournal(folder)
        rules = policy(tenant("a", 1000, elastic_cap=1000), milli_gpu=2000)
        self.now = 0
        self.desk = CoreDesk(Machine(rules), lambda: self.now, self.journal, self.seen.append)
        self.ready("m-0")

    def ready(self, name: str) -> None:
        target = Target(name, "127.0.0.1", 1, Adapter("openai"), "m")
        self.desk.replica_ready(Replica(name, "m", 2000, 4, 4 * CONTEXT), target)

    def submit(self, name: str) -> Note:
        note = Note(name, self.heard)
        self.desk.submit(note.request, note)
        return note

    def end(self, name: str, outcome: Outcome = Outcome.COMPLETED, *, attempt: int = 1, retry: bool = False) -> None:
        self.desk.ended(Ended(name, attempt, outcome, Usage(1, 0, 1), retry=retry))


def test_the_next_is_called_when_one_ends(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for name in ("r0", "r1", "r2"):
        room.submit(name)
    assert room.heard == ["r0 to m-0 #1", "r1 to m-0 #1"]
    room.end("r0")
    assert room.heard[2:] == ["r2 to m-0 #1"]
    assert [record.request_id for record in room.seen] == ["r0"]
    room.journal.close()


def test_a_waiter_that_ends_at_once_keeps_the_order_and_the_stack_flat(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.submit("r0")
    room.submit("r1")
    notes = [Note(f"x{n}", room.heard) for n in range(900)]
    for note in notes:
        note.on_dispatch = partial(room.end, note.name, Outcome.CANCELLED)
        room.desk.submit(note.request, note)
    room.end("r0")
    assert room.heard[2:] == [f"x{n} to m-0 #1" for n in range(900)]
    room.end("r1")
    assert room.desk.open_requests == 0
    room.journal.close()


def test_a_cancelled_waiter_hears_nothing_and_holds_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for name in ("r0", "r1", "r2"):
        room.submit(name)
    room.desk.cancel("r2")
    room.end("r0")
    room.end("r1")
    assert room.heard == ["r0 to m-0 #1", "r1 to m-0 #1"]
    assert room.desk.machine.state.quotas["main"].use == 0
    room.journal.close()


def test_a_client_that_goes_between_decision_and_call_gives_its_slot_back(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.submit("r0")
    second = Note("late", room.heard)
    room.submit("r1")
    room.desk.submit(second.request, second)
    room.submit("r3")
    mover = Note("mover", room.heard)
    mover.on_dispatch = partial(room.desk.cancel, "r3")
    room.desk.submit(mover.request, mover)
    for name in ("r0", "r1", "late"):
        room.end(name)
    room.end("r3")
    room.end("mover")
    assert room.desk.machine.state.quotas["main"].use == 0
    room.journal.close()


def test_a_request_is_open_while_it_waits_or_runs(tmp_path: Path) -> None:
    room = Room(tmp_path)
    notes = [room.submit(name) for name in ("r0", "r1", "r2")]
    assert [room.desk.open_request(note.name) for note in notes] == [note.request for note in notes]
    assert room.desk.open_request("r3") is None
    room.end("r0")
    assert room.desk.open_request("r0") is None
    room.journal.close()


def test_a_failed_attempt_is_tried_on_another_replica_and_then_reported(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.ready("m-1")
    room.submit("r0")
    room.end("r0", Outcome.FAILED, retry=True)
    room.end("r0", Outcome.FAILED, attempt=2, retry=True)
    assert room.heard == ["r0 to m-0 #1", "r0 to m-1 #2", "r0 failed"]
    assert room.desk.open_requests == 0
    room.journal.close()


def test_without_a_journal_nothing_new_is_served_and_nothing_is_lost(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.submit("r0")
    room.journal.full = True
    room.end("r0")
    refused = room.submit("r1")
    assert refused.refusal is not None
    assert refused.refusal.reason is Reason.NO_JOURNAL
    assert "The disk is full." in refused.refusal.message
    room.desk.tick()
    assert room.submit("r2").refusal is not None
    room.journal.full = False
    room.desk.tick()
    assert room.submit("r3").refusal is None
    assert room.journal.appended == 1
    room.journal.close()


class Listening(Machine):
    """A machine that writes down what happens, and wants nothing done."""

    def __init__(self) -> None:
        super().__init__(policy(tenant("a", 1000)))
        self.heard: list[tuple[Event, int]] = []

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.heard.append((event, now))
        return []


def test_what_an_operator_grants_and_what_devices_do_reaches_the_machine(tmp_path: Path) -> None:
    journal, machine, seen = Journal(tmp_path), Listening(), list[UsageRecord]()
    desk = CoreDesk(machine, lambda: 7, journal, seen.append)
    desk.granted("a", 1500, 90)
    desk.devices_changed("main", 500)
    assert machine.heard == [(Granted("a", 1500, 90), 7), (DevicesChanged("main", 500), 7)]
    journal.close()
