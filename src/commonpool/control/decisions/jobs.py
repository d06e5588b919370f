"""Jobs: where one starts, and which ones are asked to save their state for a lender."""

from collections.abc import Iterator

from commonpool.core.devices import Devices
from commonpool.core.english import english
from commonpool.core.entries import Entry
from commonpool.core.reclaim import CHECKPOINT_NS
from commonpool.core.said import Said, clauses, say
from commonpool.core.state import State
from commonpool.core.story import loan
from commonpool.observe.decisions import Decision, Kind


class Jobs:
    """The jobs of all pools."""

    def __init__(self) -> None:
        self._running: dict[str, set[tuple[str, int]]] = {}  # by pool: jobs and their attempts
        self._saving: dict[str, set[str]] = {}

    def look(self, state: State, now: int) -> Iterator[Decision]:
        """See `Observer.look`."""
        for pool, devices in state.devices.items():
            running = {(job, entry.attempt) for job, entry in devices.running.items()}
            new = running - self._running.get(pool, set())
            self._running[pool] = running
            for job, _ in sorted(new):
                yield _started(pool, devices, devices.running[job], now)
            saving = set(devices.saving)
            asked = saving - self._saving.get(pool, set())
            self._saving[pool] = saving
            for job in sorted(asked & devices.running.keys()):
                yield _asked(pool, devices.running[job], now)


def _started(pool: str, devices: Devices, entry: Entry, now: int) -> Decision:
    held = None if devices.inventory is None else devices.inventory.held(entry.id)
    loans = tuple(loan(who, milli_gpu) for who, milli_gpu in _borrowed(entry).items())
    wait_ns = entry.dispatched - entry.queued
    said = clauses(
        say("job.starts", job=entry.id, tenant=entry.task.tenant, milli_gpu=entry.ask),
        say("job.borrows", loans=loans) if loans else None,
        say("job.waited", wait_ns=wait_ns) if wait_ns > 0 else None,
    )
    return _job(pool, entry, "placement", said, now, "" if held is None else held.node)


def _asked(pool: str, entry: Entry, now: int) -> Decision:
    lenders = tuple(say("name", name=who) for who in _borrowed(entry) if who)
    said = say(
        "job.asked",
        job=entry.id,
        tenant=entry.task.tenant,
        length_ns=CHECKPOINT_NS,
        lenders=lenders or say("job.its_lender"),
    )
    return _job(pool, entry, "loan", said, now)


def _job(pool: str, entry: Entry, kind: Kind, said: Said, now: int, node: str = "") -> Decision:
    return Decision(
        now,
        kind,
        english(said),
        (entry.task.tenant,),
        pool=pool,
        subject=entry.id,
        milli_gpu=entry.ask,
        node=node,
        said=said,
    )


def _borrowed(entry: Entry) -> dict[str, int]:
    """What it borrows, by lender."""
    found: dict[str, int] = {}
    loan = entry.running
    while loan is not None:
        found[loan.lender] = found.get(loan.lender, 0) + loan.milli_gpu
        loan = loan.following
    return found
