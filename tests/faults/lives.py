"""A product without its servers, from the desk to the closed hours, that is killed after any step and lives on.

    python -m tests.faults.lives FOLDER

runs the same three hours again and again, each time in a process that ends by SIGKILL right after another step, and
prints what is found afterwards, a line of JSON for each. Every process is forked, so that nothing is imported twice.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commonpool.control.books import Books, Scope
from commonpool.control.recovery import settle_lost
from commonpool.core.effects import Checkpoint, Refuse, Start
from commonpool.core.events import Ended, JobEnded, JobResumed
from commonpool.core.ledger import Kind, Rates, Span, Standing
from commonpool.core.machine import Machine
from commonpool.core.metering import Note
from commonpool.core.model import NS_PER_HOUR, Job, Outcome, Replica, Request, Usage, UsageRecord, Wait
from commonpool.engines.base import Adapter, Target
from commonpool.gateway.caches import Part
from commonpool.gateway.desk import CoreDesk
from commonpool.store.journal import Journal
from commonpool.store.ledger import Closing
from commonpool.store.sql.connection import Connection, Row
from commonpool.store.sqlite import SqliteStore
from commonpool.store.writer import Writer
from tests.core.worlds import CONTEXT, S, policy, tenant
from tests.store.records import T0

MIN = 60 * S
HOURS = 3
POLICY = policy(tenant("a", 1000), tenant("b", 1000), milli_gpu=3000)
JOB = Job("j1", "b", "app", "main", "batch", 1000)
RESTART_NS = 5 * S
FAR = (1 << 63) - 1

Step = Callable[[str], None]


class StepStore(SqliteStore):
    """The store; each change that is committed is a step, and each statement of the closing of an hour."""

    def __init__(self, folder: Path, step: Step) -> None:
        self._step = step
        self._closes = False
        super().__init__(folder)

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[Any]:
        with super()._transaction(durable=durable) as connection:
            yield StepConnection(connection, self._step) if self._closes else connection

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        differing = super().add_usage(records)
        self._step("records committed")
        return differing

    def save_running(self, records: Iterable[UsageRecord]) -> None:
        super().save_running(records)
        self._step("running saved")

    def add_meters(self, notes: Iterable[Standing | Span]) -> None:
        super().add_meters(notes)
        self._step("meters committed")

    def sync(self) -> None:
        super().sync()
        self._step("store synced")

    def close_hour(self, closing: Closing) -> bool:
        self._closes = True
        closed = super().close_hour(closing)
        self._closes = False
        self._step("hour closed")
        return closed


class StepConnection:
    """A transaction, each of whose statements is a step, before it is committed."""

    def __init__(self, connection: Connection, step: Step) -> None:
        self._connection = connection
        self._step = step

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        found = self._connection.query(sql, values)
        self._step("hour half closed")
        return found

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        changed = self._connection.run(sql, values)
        self._step("hour half closed")
        return changed

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self._connection.insert(table, columns, rows)
        self._step("hour half closed")


class StepJournal(Journal):
    """The journal; each append is a step, by what it is about."""

    def __init__(self, folder: Path, step: Step) -> None:
        self._step = step
        super().__init__(folder, ballast_bytes=0, segment_bytes=2500)

    def append(self, *notes: Note) -> None:
        super().append(*notes)
        for note in notes:
            if not isinstance(note, UsageRecord):
                self._step("metered")
            elif note.outcome is not Outcome.RUNNING:
                self._step("recorded")
            else:
                self._step("hour noted" if note.run_ns else "dispatch noted")


class Client:
    """A request as its client and its engine see it."""

    def __init__(self, life: "Life", name: str, tenant_name: str) -> None:
        self.request = Request(name, tenant_name, "app", "m", "interactive", "chat", 10, 10)
        self.attempt = 0
        self._life = life

    def dispatched(self, target: Target, attempt: int, wait_ns: int, waits: tuple[Wait, ...], part: Part) -> None:  # noqa: ARG002 - the desk's
        self.attempt = attempt
        self._life.saw("sent", f"{self.request.id}#{attempt}")

    @property
    def first_token_at(self) -> int:
        return 0

    def recalled(self) -> None:
        raise AssertionError(self.request.id)

    def refused(self, refusal: Refuse) -> None:
        raise AssertionError(refusal)

    def failed(self) -> None:
        raise AssertionError(self.request.id)


class Life:
    """One process of the product, from `now` on. What the world has seen of it is in files of its own."""

    def __init__(self, folder: Path, now: int, step: "Counting") -> None:
        self.now = self.started = step.now = now
        self.step = step
        self.folder = folder
        self.heard: list[str] = []
        self.store = StepStore(folder, step)
        self.journal = StepJournal(folder / "journal", step)
        assert self.journal.left_until() <= now
        self.writer = Writer(self.journal, self.store, report=self.heard.append, batch_records=4)
        self.desk = CoreDesk(Machine(POLICY), lambda: self.now, self.journal, lambda _: None)
        self.books = Books(self.store, clock=lambda: self.now, scope=self._scope, flush=self.drain)
        self.clients: dict[str, Client] = {}

    # -- the world -----------------------------------------------------------------------------------------------------

    def saw(self, what: str, value: str) -> None:
        """Somebody outside has seen it, whatever becomes of this process."""
        with (self.folder / what).open("a") as file:
            file.write(f"{value} {self.now}\n")
        self.step(what)

    def seen(self, what: str) -> list[list[str]]:
        path = self.folder / what
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    # -- the product ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        name = f"m-0.{1 + len(self.seen('up'))}"
        self.desk.replica_ready(Replica(name, "m", 2000, 4, 4 * CONTEXT), Target(name, "h", 1, Adapter("openai"), "m"))
        self.saw("up", name)
        self.drain()
        if not self.store.record(JOB.id):
            self.adopt_job()
        self.desk.tick()
        asyncio.run(settle_lost(self.desk, lambda: self.writer.running, self._stored, self._known_until))

    def adopt_job(self) -> None:
        """Take up the job as it was left: it runs below a runner of its own, and ends when it does."""
        owner = Owner(self)
        if started := self.seen("started"):
            attempt, at = map(int, started[-1])
            self.desk.resume_job(JobResumed(JOB, attempt, at, at), owner)
            for _, ended in self.seen("job ended"):
                self.desk.job_ended(JobEnded(JOB.id, attempt, Outcome.COMPLETED, ended=int(ended), exited=True))
        elif submitted := self.seen("submitted"):
            self.desk.submit_job(JOB, owner, again=True, arrived=int(submitted[0][1]))

    async def _stored(self) -> None:
        self.drain()

    async def _known_until(self, pool: str) -> int:
        last = self.store.last_standing(pool, self.started)
        return 0 if last is None else last.end_ns

    def drain(self) -> bool:
        self.writer.drain()
        self.step("flushed")
        return True

    def _scope(self) -> Scope:
        return Scope(("main",), 0, self.desk.noted_until, lambda _pool, _hour: Rates(2_500_000, 2_000_000), FAR)

    def run(self, script: Iterable[tuple[int, str, str]]) -> None:
        for at, what, value in script:
            self.now = self.step.now = max(self.now, at)
            getattr(self, f"do_{what}")(value)

    def do_tick(self, _: str) -> None:
        self.desk.tick()

    def do_drain(self, _: str) -> None:
        self.drain()

    def do_books(self, _: str) -> None:
        asyncio.run(self.books.look())

    def do_stop(self, _: str) -> None:
        self.desk.close()
        self.journal.close()
        self.drain()

    def do_arrive(self, name: str) -> None:
        client = self.clients[name] = Client(self, name, name[0])
        self.desk.submit(client.request, client)

    def do_first_byte(self, name: str) -> None:
        if name in self.clients:
            self.step("first byte")

    def do_fail(self, name: str) -> None:
        if client := self.clients.get(name):
            self.desk.ended(Ended(name, client.attempt, Outcome.FAILED, Usage(), 502, retry=True))

    def do_end(self, name: str) -> None:
        if client := self.clients.pop(name, None):
            attempt = client.attempt
            self.desk.ended(Ended(name, attempt, Outcome.COMPLETED, Usage(10, 0, 10)))
            self.saw("answered", f"{name}#{attempt}")

    def do_submit(self, _: str) -> None:
        self.saw("submitted", JOB.id)
        self.desk.submit_job(JOB, Owner(self))

    def do_end_job(self, _: str) -> None:
        if started := self.seen("started"):
            self.saw("job ended", started[-1][0])
            self.desk.job_ended(JobEnded(JOB.id, int(started[-1][0]), Outcome.COMPLETED, exited=True))


class Owner:
    """Who runs the job."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def started(self, effect: Start) -> None:
        self._life.saw("started", str(effect.attempt))

    def checkpoint(self, effect: Checkpoint) -> None:
        raise AssertionError(effect)

    def refused(self, effect: Refuse) -> None:
        raise AssertionError(effect)

    def failed(self, job_id: str) -> None:
        raise AssertionError(job_id)


SCRIPT = (
    (0, "tick", ""),
    (1 * MIN, "arrive", "a1"),
    (1 * MIN + 1, "arrive", "a2"),
    (1 * MIN + 2, "arrive", "a3"),  # borrows from b
    (1 * MIN + 3, "arrive", "b4"),
    (2 * MIN, "first_byte", "a1"),
    (2 * MIN + 1, "end", "a1"),
    (3 * MIN, "drain", ""),
    (5 * MIN, "submit", ""),
    (10 * MIN, "tick", ""),
    (10 * MIN + 1, "drain", ""),
    (30 * MIN, "arrive", "a5"),
    (31 * MIN, "fail", "a5"),
    (31 * MIN + 2 * S, "tick", ""),  # where it failed is trusted again
    (32 * MIN, "end", "a5"),
    (59 * MIN, "tick", ""),
    (59 * MIN + 1, "drain", ""),
    (60 * MIN + 1 * S, "tick", ""),
    (60 * MIN + 5 * S, "end", "a2"),
    (60 * MIN + 20 * S, "books", ""),
    (61 * MIN, "arrive", "a6"),
    (90 * MIN, "tick", ""),
    (119 * MIN, "end", "a3"),
    (120 * MIN + 1 * S, "tick", ""),
    (120 * MIN + 20 * S, "books", ""),
    (121 * MIN, "end_job", ""),
    (122 * MIN, "end", "a6"),
    (123 * MIN, "end", "b4"),
    (150 * MIN, "tick", ""),
)
END = T0 + HOURS * NS_PER_HOUR + 20 * S


def live(folder: Path, now: int, step: "Counting") -> Life:
    """One process, from its start until nothing more happens."""
    life = Life(folder, now, step)
    life.start()
    life.run([(T0 + at, what, value) for at, what, value in SCRIPT if T0 + at > now or now == T0])
    life.run([(END, "tick", ""), (END, "books", ""), (END, "stop", "")])
    return life


def found(life: Life) -> dict[str, Any]:
    """What the books say in the end, and what the world has seen."""
    store = life.store
    names = ("a1", "a2", "a3", "b4", "a5", "a6", JOB.id)
    records = [record for name in names for record in store.record(name)]
    hours = [hour for hour in store.reconciliations(T0, T0 + HOURS * NS_PER_HOUR) if hour.pool]
    sums = store.posting_sums((), T0, T0 + HOURS * NS_PER_HOUR, {})
    worked = (Kind.USED, Kind.UNCHARGED, Kind.BORROWED)
    return {
        "sent": [line[0] for line in life.seen("sent")] + [f"{JOB.id}#{line[0]}" for line in life.seen("started")],
        "answered": [line[0] for line in life.seen("answered")],
        "records": {f"{record.request_id}#{record.attempt}": str(record.outcome) for record in records},
        "running": [note.request_id for note in store.running()],
        "hours": [(hour.hour_ns - T0) // NS_PER_HOUR for hour in hours],
        "there": [hour.devices for hour in hours],
        "charged": [hour.charged for hour in hours],
        "used": sum(record.milli_gpu_ns for record in records),
        "posted": sum(line.quantity for line in sums if line.kind in worked),
        "heard": [sentence for sentence in life.heard if "differs" in sentence or "damaged" in sentence],
    }


class Counting:
    """Counts the steps of a process and ends it right after one of them; when that was is kept in a file."""

    def __init__(self, folder: Path, last: int) -> None:
        self.names: list[str] = []
        self.now = T0
        self._folder = folder
        self._last = last

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._last:
            (self._folder / "killed").write_text(str(self.now))
            os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(work: Callable[[], Any]) -> Any:
    """What the work returns, None where the process was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
        except BaseException:  # noqa: BLE001 - whatever it is, the parent should not go on as this one
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if said else -signal.SIGKILL)
    return json.loads(said) if said else None


def one(folder: Path, kills: list[int]) -> dict[str, Any]:
    """Lives until one ends by itself; each of the others ends after its step of `kills`."""
    now = T0
    for last in [*kills, 0]:
        step = Counting(folder, last)

        def work(now: int = now, step: Counting = step) -> dict[str, Any]:
            return found(live(folder, now, step)) | {"steps": step.names}

        end = in_a_process(work)
        if end is not None:
            return {"kills": kills, **end}
        now = int((folder / "killed").read_text()) + RESTART_NS
    raise AssertionError("the last life is not killed")


def main(folder: Path) -> None:
    (folder / "whole").mkdir()
    whole = one(folder / "whole", [])
    sys.stdout.write(json.dumps(whole) + "\n")
    for number in range(1, len(whole["steps"]) + 1):
        here = folder / str(number)
        here.mkdir()
        sys.stdout.write(json.dumps(one(here, [number, 1 + number % 13])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
