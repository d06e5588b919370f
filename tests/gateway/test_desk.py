"""The desk: effects in order, records before answers, nothing held after the client is gone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from structlog.testing import capture_logs

from commonpool.core.effects import Checkpoint, Effect, Refuse, Start, StartReplica
from commonpool.core.events import (
    DevicesChanged,
    Ended,
    Event,
    Granted,
    HostLoad,
    JobEnded,
    JobResumed,
    NodeLost,
    NodeSeen,
    Recalled,
    Released,
    ReplicaLost,
    ReplicaReady,
    Resumed,
)
from commonpool.core.machine import Machine
from commonpool.core.metering import Note
from commonpool.core.model import (
    Job,
    Limits,
    Node,
    Outcome,
    Policy,
    Reason,
    Replica,
    Request,
    Usage,
    UsageRecord,
    Wait,
)
from commonpool.engines.base import Adapter, Target
from commonpool.gateway.caches import ALL, Part
from commonpool.gateway.desk import CoreDesk
from commonpool.store.frames import frames
from commonpool.store.journal import Journal, JournalError, decoder
from tests.core.clusters import deployment, rules
from tests.core.worlds import CONTEXT, policy, tenant


def nothing() -> None:
    """What a waiter does when it has nothing to do."""


class Client:
    """A waiter that writes down what it hears, and may act on it."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.request = Request(name, "a", "app", "m", "interactive", "chat", 10, 10)
        self.heard = heard
        self.on_dispatch: Callable[[], object] = nothing
        self.on_recall: Callable[[], object] = nothing
        self.builds: list[str] = []
        self.refusal: Refuse | None = None

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:
        assert (wait_ns >= sum(wait.ns for wait in waits), part) == (True, ALL)
        self.heard.append(f"{self.name} to {target.replica_id} #{attempt}")
        self.builds.append(target.build)
        self.on_dispatch()

    def refused(self, refusal: Refuse) -> None:
        self.refusal = refusal
        self.heard.append(f"{self.name} refused")

    @property
    def first_token_at(self) -> int:
        return 0

    def recalled(self) -> None:
        self.heard.append(f"{self.name} recalled")
        self.on_recall()

    def failed(self) -> None:
        self.heard.append(f"{self.name} failed")


class JobNote:
    """The owner of jobs: it writes down what it hears, and may act on a start."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard
        self.on_start: Callable[[], object] = nothing

    def started(self, effect: Start) -> None:
        self.heard.append(f"{effect.job_id} started #{effect.attempt}")
        self.on_start()

    def checkpoint(self, effect: Checkpoint) -> None:
        self.heard.append(f"{effect.job_id} to save its state")

    def refused(self, effect: Refuse) -> None:
        self.heard.append(f"{effect.request_id} refused")

    def failed(self, job_id: str) -> None:
        self.heard.append(f"{job_id} failed")


class Starter:
    """Whoever starts and ends replicas; it writes down what it is told."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard
        self.on_start: Callable[[str], object] = self.nothing

    def nothing(self, replica_id: str) -> None:
        """What it does when it starts one."""

    def start(self, effect: StartReplica) -> None:
        self.heard.append(f"start {effect.replica.id}")
        self.on_start(effect.replica.id)

    def stop(self, replica_id: str) -> None:
        self.heard.append(f"stop {replica_id}")


class FullJournal(Journal):
    """A journal whose disk is full while `full` is set."""

    full = False
    poison = ""  # whose records fail in a way that nobody foresaw
    writes: tuple[int, ...] = ()  # how many notes each had

    def append(self, *notes: Note) -> None:
        if any(isinstance(note, UsageRecord) and note.request_id == self.poison for note in notes):
            raise TypeError(self.poison)
        if self.full:
            self.trouble = "The disk is full."
            raise JournalError(self.trouble)
        super().append(*notes)
        self.writes += (len(notes),)

    def probe(self) -> bool:
        self.trouble = "The disk is full." if self.full else ""
        return not self.full


class Room:
    """A desk with one replica of four slots, two of which tenant `a` may use; under another policy, with none."""

    def __init__(self, folder: Path, other: Policy | None = None) -> None:
        self.heard: list[str] = []
        self.seen: list[UsageRecord] = []
        self.journal = FullJournal(folder)
        wanted = other or policy(tenant("a", 1000, elastic_cap=1000), milli_gpu=2000)
        self.now = 0
        self.desk = CoreDesk(Machine(wanted), lambda: self.now, self.journal, self.seen.append)
        self.starter = Starter(self.heard)
        self.jobs = JobNote(self.heard)
        if other is None:
            self.ready("m-0")

    def ready(self, name: str) -> None:
        target = Target(name, "127.0.0.1", 1, Adapter("openai"), "m")
        self.desk.replica_ready(Replica(name, "m", 2000, 4, 4 * CONTEXT), target)

    def submit(self, name: str) -> Client:
        note = Client(name, self.heard)
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
    notes = [Client(f"x{n}", room.heard) for n in range(900)]
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
    second = Client("late", room.heard)
    room.submit("r1")
    room.desk.submit(second.request, second)
    room.submit("r3")
    mover = Client("mover", room.heard)
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


def noted(room: Room) -> list[tuple[str, str]]:
    """What the journal has of attempts, in order."""
    decode = decoder()
    found = []
    for segment in room.journal.segments():
        for each in frames(room.journal.path(segment).read_bytes()):
            note = decode(each.payload)
            if isinstance(note, UsageRecord):
                found.append((note.request_id, str(note.outcome)))
    return found


def test_an_attempt_is_noted_before_it_is_sent_anywhere(tmp_path: Path) -> None:
    room = Room(tmp_path)
    before: list[list[tuple[str, str]]] = []
    client = Client("r0", room.heard)
    client.on_dispatch = lambda: before.append(noted(room))
    room.desk.submit(client.request, client)
    assert before == [[("r0", "running")]]
    # the next one is noted together with the record that makes room for it
    room.submit("r1")
    waiting = Client("r2", room.heard)
    waiting.on_dispatch = lambda: before.append(noted(room))
    room.desk.submit(waiting.request, waiting)
    room.end("r0")
    assert before[1][-2:] == [("r0", "completed"), ("r2", "running")]
    room.journal.close()


def test_what_arrives_in_one_turn_is_noted_by_one_write_and_sent_on_after_that(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 1000, elastic_cap=1000), milli_gpu=2000))
    later: list[Callable[[], None]] = []
    room.desk = CoreDesk(room.desk.machine, lambda: room.now, room.journal, room.seen.append, later.append)
    room.ready("m-0")
    room.submit("r0")
    room.submit("r1")
    room.submit("r2")  # waits
    assert (room.heard, noted(room), len(later)) == ([], [], 1)
    later.pop()()
    assert room.heard == ["r0 to m-0 #1", "r1 to m-0 #1"]
    assert noted(room) == [("r0", "running"), ("r1", "running")]
    # what ends is recorded before anybody is told, and what is put off comes with it
    room.desk.cancel("r2")
    room.end("r1")
    room.submit("r3")
    assert (room.heard[2:], len(later)) == ([], 1)
    room.end("r0")
    assert noted(room)[-2:] == [("r3", "running"), ("r0", "completed")]
    assert room.heard[2:] == ["r3 to m-0 #1"]
    later.pop()()
    assert room.heard[2:] == ["r3 to m-0 #1"]
    # one that leaves in between is sent nowhere
    room.submit("r4")
    room.desk.cancel("r4")
    assert noted(room)[-1] == ("r4", "cancelled")
    assert room.heard[3:] == []
    room.journal.close()


def test_what_ends_in_one_turn_is_noted_by_one_write_and_its_answers_end_after_that(tmp_path: Path) -> None:
    room = Room(tmp_path)
    later: list[Callable[[], None]] = []
    room.desk = CoreDesk(room.desk.machine, lambda: room.now, room.journal, room.seen.append, later.append)
    room.ready("m-0")
    for name in ("r0", "r1", "r2", "r3"):
        room.submit(name)
    later.pop()()
    writes = len(room.journal.writes)
    for name in ("r0", "r1"):
        room.desk.ended(
            Ended(name, 1, Outcome.COMPLETED, Usage(1, 0, 1)), partial(room.heard.append, f"{name} is answered")
        )
    assert (room.heard[2:], len(room.journal.writes), len(later)) == ([], writes, 1)
    later.pop()()
    ended = [("r0", "completed"), ("r1", "completed"), ("r2", "running"), ("r3", "running")]
    assert (noted(room)[-4:], len(room.journal.writes)) == (ended[:1] + ended[2:3] + ended[1:2] + ended[3:], writes + 1)
    assert room.heard[2:] == ["r0 is answered", "r1 is answered", "r2 to m-0 #1", "r3 to m-0 #1"]
    # what is written at once takes with it what waits to be
    room.desk.ended(Ended("r2", 1, Outcome.COMPLETED, Usage(1, 0, 1)), partial(room.heard.append, "r2 is answered"))
    room.end("r3", Outcome.FAILED)
    assert (noted(room)[-2:], room.heard[-1]) == ([("r2", "completed"), ("r3", "failed")], "r2 is answered")
    later.pop()()
    assert room.heard[-1] == "r2 is answered"
    room.journal.close()


def test_answers_end_though_another_one_cannot_or_a_note_of_theirs_cannot_be_kept(tmp_path: Path) -> None:
    def fails() -> None:
        raise ValueError("it cannot be ended")

    room = Room(tmp_path)
    later: list[Callable[[], None]] = []
    room.desk = CoreDesk(room.desk.machine, lambda: room.now, room.journal, room.seen.append, later.append)
    room.ready("m-0")
    for name in ("r0", "r1", "r2", "r3"):
        room.submit(name)
    later.pop()()
    room.journal.poison = "r0"
    for name, end in (("r0", fails), ("r1", partial(room.heard.append, "r1 is answered"))):
        room.desk.ended(Ended(name, 1, Outcome.COMPLETED, Usage(1, 0, 1)), end)
    with capture_logs() as logs:
        later.pop()()
    assert room.heard[2:] == ["r1 is answered", "r2 to m-0 #1", "r3 to m-0 #1"]
    assert noted(room)[-3:] == [("r2", "running"), ("r1", "completed"), ("r3", "running")]
    assert [each["event"] for each in logs] == [
        "a usage record cannot be kept, now or ever",
        "an answer could not be ended",
    ]
    room.journal.close()


def test_an_answer_ends_though_its_record_is_only_held(tmp_path: Path) -> None:
    room = Room(tmp_path)
    later: list[Callable[[], None]] = []
    room.desk = CoreDesk(room.desk.machine, lambda: room.now, room.journal, room.seen.append, later.append)
    room.ready("m-0")
    room.submit("r0")
    later.pop()()
    room.journal.full = True
    room.desk.ended(Ended("r0", 1, Outcome.COMPLETED, Usage(1, 0, 1)), partial(room.heard.append, "r0 is answered"))
    later.pop()()
    assert (room.heard[-1], noted(room)[-1]) == ("r0 is answered", ("r0", "running"))
    room.journal.full = False
    room.desk.tick()
    assert noted(room)[-1] == ("r0", "completed")
    room.journal.close()


def test_an_answer_that_is_kept_is_recorded_before_it_is_given(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 1000, limits=Limits(requests_per_minute=1)), milli_gpu=2000))
    before: list[list[tuple[str, str]]] = []
    client, other = (Client(name, room.heard) for name in ("r0", "r1"))
    client.on_recall = lambda: before.append(noted(room))
    room.desk.recall(Recalled(client.request, Usage(1, 1, 1)), client)
    assert before == [[("r0", "completed")]]
    room.desk.recall(Recalled(other.request, Usage(1, 1, 1)), other)
    assert (room.heard, room.desk.open_requests) == (["r0 recalled", "r1 refused"], 0)
    assert [(record.request_id, record.outcome) for record in room.seen] == [("r0", "completed"), ("r1", "refused")]
    room.journal.close()


def test_a_target_tells_the_build_that_runs(tmp_path: Path) -> None:
    one, two = (rules(tenant("a", 4000), models=(deployment(engine=build),)) for build in ("one", "two"))
    room = Room(tmp_path, one)
    room.desk.replicas = room.starter
    room.desk.tick()
    room.ready("m-0.1")
    first = room.submit("r0")
    room.desk.configure(two)
    second = room.submit("r1")
    assert room.heard == ["start m-0.1", "r0 to m-0.1 #1", "start m-0.2", "r1 to m-0.1 #1"]
    room.ready("m-0.2")
    third = room.submit("r2")
    assert (first.builds, second.builds, third.builds) == (["one"], ["one"], ["two"])
    adopted = Room(tmp_path / "adopted", two)
    adopted.desk.replica_ready(
        Replica("m-0.1", "m", 2000, 4, 4 * CONTEXT), Target("m-0.1", "127.0.0.1", 1, Adapter("openai"), "m"), "one"
    )
    assert adopted.submit("r0").builds == ["one"]
    for each in (room, adopted):
        each.journal.close()


def test_a_job_is_noted_before_it_is_started_and_one_of_an_earlier_run_when_it_is_taken_up(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 1000), milli_gpu=2000))
    before: list[list[tuple[str, str]]] = []
    room.jobs.on_start = lambda: before.append(noted(room))
    room.now = 5
    room.desk.submit_job(Job("j1", "a", "app", "main", "batch", 500), room.jobs)
    assert before == [[("j1", "running")]]
    room.desk.resume_job(JobResumed(Job("j0", "a", "app", "main", "batch", 500), 3, 1, 2), room.jobs)
    assert noted(room)[1:] == [("j0", "running")]
    room.journal.close()


def test_what_is_noted_while_the_journal_is_full_is_kept_in_order(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.submit("r0")
    room.journal.full = True
    room.end("r0", Outcome.FAILED, retry=True)
    room.journal.full = False
    room.desk.tick()  # what failed is trusted again
    room.end("r0", attempt=2)
    assert noted(room) == [("r0", "running"), ("r0", "failed"), ("r0", "running"), ("r0", "completed")]
    room.journal.close()


def test_an_hour_that_is_noted_and_not_written_is_not_over_for_the_books(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.now = 3 * 3_600_000_000_000
    room.journal.full = True
    room.desk.devices_changed("main", 1000)
    assert (room.desk.noted_until, room.desk.metering.noted_until) == (0, room.now)
    room.journal.full = False
    room.desk.tick()
    assert room.desk.noted_until == room.now
    room.journal.close()


def test_a_journal_that_has_kept_records_for_too_long_takes_nothing_new(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.submit("r0")
    room.journal.overdue = "for 24 hours nothing was stored."
    refused = room.submit("r1")
    assert refused.refusal is not None
    assert refused.refusal.reason is Reason.NO_JOURNAL
    assert "for 24 hours nothing was stored" in refused.refusal.message
    room.end("r0")
    assert noted(room)[-1] == ("r0", "completed")
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
    kept = Client("r4", room.heard)
    room.desk.recall(Recalled(kept.request, Usage(1, 1, 1)), kept)
    assert kept.refusal is not None
    room.journal.full = False
    room.desk.tick()
    assert (room.submit("r3").refusal, room.journal.trouble) == (None, "")
    assert room.journal.appended == 3  # what began and ended, and what began again
    room.journal.close()


class Listening(Machine):
    """A machine that writes down what happens, and wants nothing done."""

    def __init__(self) -> None:
        super().__init__(policy(tenant("a", 1000)))
        self.heard: list[tuple[Event, int]] = []

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.heard.append((event, now))
        return []


def listening(folder: Path) -> tuple[CoreDesk, Listening]:
    machine, seen = Listening(), list[UsageRecord]()
    return CoreDesk(machine, lambda: 7, Journal(folder), seen.append), machine


def test_what_operators_nodes_and_replicas_do_reaches_the_machine(tmp_path: Path) -> None:
    desk, machine = listening(tmp_path)
    replica, node, load = Replica("m-0.1", "m", 2000, 4, 4 * CONTEXT), Node("n1", "main"), HostLoad("n1", 1, 2, 3)
    desk.granted("a", 1500, 90)
    desk.released("a", 500)
    desk.devices_changed("main", 500)
    desk.node_seen(node)
    desk.host_load(load)
    desk.node_lost("n1")
    desk.replica_ready(replica, Target("m-0.1", "127.0.0.1", 1, Adapter("openai"), "m"), "one")
    desk.replica_lost("m-0.1", "It broke.")
    assert machine.heard == [
        (Granted("a", 1500, 90), 7),
        (Released("a", 500), 7),
        (DevicesChanged("main", 500), 7),
        (NodeSeen(node), 7),
        (load, 7),
        (NodeLost("n1"), 7),
        (ReplicaReady(replica, "one"), 7),
        (ReplicaLost("m-0.1", "It broke."), 7),
    ]


# -- replicas ----------------------------------------------------------------------------------------------------------


def follows_demand() -> Policy:
    """Model `m` has one replica, which the machine has started."""
    return rules(tenant("a", 4000), models=(deployment(),))


def test_replicas_are_started_and_ended_by_whoever_does_that(tmp_path: Path) -> None:
    room = Room(tmp_path, follows_demand())
    room.desk.replicas = room.starter
    room.desk.tick()
    room.ready("m-0.1")
    room.submit("r0")
    assert room.heard == ["start m-0.1", "r0 to m-0.1 #1"]
    room.desk.configure(rules(tenant("a", 4000)))
    room.end("r0")
    assert room.heard[2:] == ["stop m-0.1"]
    room.desk.replica_lost("m-0.1")
    assert room.desk.machine.state.devices["main"].free == 4000
    room.journal.close()


def test_one_that_is_ready_or_lost_while_it_is_being_started_keeps_the_order(tmp_path: Path) -> None:
    room = Room(tmp_path, follows_demand())
    room.desk.replicas = room.starter
    room.starter.on_start = room.ready
    room.submit("r0")
    assert room.heard == []
    room.desk.tick()
    assert room.heard == ["start m-0.1", "r0 to m-0.1 #1"]
    room.starter.on_start = lambda replica_id: room.desk.replica_lost(replica_id, "It broke.")
    room.desk.replica_lost("m-0.1", "It broke.")
    room.now = 10**9
    room.desk.tick()
    assert room.heard[2:] == ["start m-0.2"]
    room.journal.close()


def test_where_nothing_starts_replicas_that_is_said(tmp_path: Path) -> None:
    room = Room(tmp_path, follows_demand())
    room.desk.tick()
    assert room.desk.machine.state.sites["m"].crew.error == "Nothing here starts replicas."
    assert room.desk.machine.state.devices["main"].free == 4000
    room.journal.close()


def test_a_request_whose_replica_was_lost_between_decision_and_call_is_tried_again(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 2000), milli_gpu=4000))
    first = room.submit("r0")
    room.submit("r1")
    first.on_dispatch = partial(room.desk.replica_lost, "m-0", "It broke.")
    room.ready("m-0")
    assert room.heard == ["r0 to m-0 #1"]
    room.ready("m-1")
    assert room.heard == ["r0 to m-0 #1", "r1 to m-1 #2"]
    room.end("r0", Outcome.FAILED, retry=True)
    assert room.heard[2:] == ["r0 to m-1 #2"]
    room.journal.close()


def test_a_decision_for_a_replica_that_nobody_can_reach_is_a_failed_attempt(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.desk.machine.handle(ReplicaReady(Replica("far", "m", 2000, 8, 8 * CONTEXT)), 0)
    room.submit("r0")
    assert room.heard == ["r0 to m-0 #2"]
    assert [(record.replica, record.status) for record in room.seen] == [("far", 502)]
    room.journal.close()


# -- what ran before ---------------------------------------------------------------------------------------------------


def test_a_request_of_an_earlier_run_ends_like_any_other(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.now = 100
    note = Client("r0", room.heard)
    room.desk.resume(Resumed(note.request, 2, 10, 20, "m-0"), note)
    assert (room.heard, room.desk.open_request("r0")) == ([], note.request)
    room.submit("r1")
    room.submit("r2")
    room.end("r0", attempt=2)
    assert room.heard == ["r1 to m-0 #1", "r2 to m-0 #1"]
    assert [(record.attempt, record.wait_ns, record.run_ns) for record in room.seen] == [(2, 10, 80)]
    assert room.desk.open_request("r0") is None
    room.journal.close()


def test_a_job_of_an_earlier_run_may_be_tried_again(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 2000), milli_gpu=2000))
    job = Job("j0", "a", "app", "main", "batch", 2000)
    room.desk.resume_job(JobResumed(job, 3, 0, 0), room.jobs)
    room.desk.submit_job(Job("j1", "a", "app", "main", "batch", 1000), room.jobs)
    room.desk.job_ended(JobEnded("j0", 3, Outcome.FAILED, retry=True))
    assert room.heard == ["j0 started #4"]
    room.desk.job_ended(JobEnded("j0", 4, Outcome.COMPLETED))
    assert room.heard == ["j0 started #4", "j1 started #1"]
    room.journal.close()


# -- jobs --------------------------------------------------------------------------------------------------------------


def submit_job(room: Room, name: str, milli_gpu: int = 2000, tenant_name: str = "a", **more: object) -> None:
    fields = {"id": name, "tenant": tenant_name, "app": "app", "pool": "main", "tier": "batch"}
    room.desk.submit_job(Job(milli_gpu=milli_gpu, **(fields | more)), room.jobs)  # type: ignore[arg-type]


def test_the_owner_of_a_job_hears_of_its_start_and_of_a_refusal(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 2000), milli_gpu=2000))
    submit_job(room, "j0")
    submit_job(room, "j1")
    submit_job(room, "large", 9000)
    room.desk.cancel_job("j1")
    room.desk.job_ended(JobEnded("j0", 1, Outcome.COMPLETED))
    assert room.heard == ["j0 started #1", "large refused"]
    assert room.desk.machine.state.quotas["main"].use == 0
    room.journal.close()


def test_the_owner_of_a_job_hears_when_a_lender_needs_back_what_it_borrows(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=2000))
    submit_job(room, "j0", reclaim="checkpoint")
    submit_job(room, "j1", 1000, "b")
    room.desk.tick()
    assert room.heard == ["j0 started #1", "j0 to save its state"]
    room.journal.close()


def test_a_job_that_is_cancelled_between_decision_and_call_gives_back_what_it_took(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 2000), milli_gpu=2000))
    submit_job(room, "j0")
    submit_job(room, "j1", 1000)
    submit_job(room, "j2", 1000)
    room.jobs.on_start = partial(room.desk.cancel_job, "j2")
    room.desk.job_ended(JobEnded("j0", 1, Outcome.COMPLETED))
    assert room.heard == ["j0 started #1", "j1 started #1"]
    assert room.desk.machine.state.quotas["main"].use == 1000
    room.journal.close()


def test_a_job_that_cannot_be_tried_again_has_failed(tmp_path: Path) -> None:
    room = Room(tmp_path, policy(tenant("a", 2000), milli_gpu=2000))
    submit_job(room, "j0")
    room.desk.configure(policy(tenant("a", 1000, elastic_cap=1000), milli_gpu=2000))
    room.desk.job_ended(JobEnded("j0", 1, Outcome.FAILED, retry=True))
    assert room.heard == ["j0 started #1", "j0 failed"]
    room.journal.close()
