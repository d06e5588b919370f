"""Jobs: where one starts, and which ones are asked to save their state for a lender."""

from collections.abc import Iterator

from commonpool.config.quantities import format_gpu
from commonpool.core.devices import Devices
from commonpool.core.entries import Entry
from commonpool.core.explain import duration
from commonpool.core.reclaim import CHECKPOINT_NS
from commonpool.core.state import State
from commonpool.observe.decisions import Decision


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
    tenant = entry.task.tenant
    held = None if devices.inventory is None else devices.inventory.held(entry.id)
    borrowed = _borrowed(entry)
    said = f"job {entry.id} of {tenant} starts on {format_gpu(entry.ask)}"
    if borrowed:
        said += f", of which it borrows {', '.join(f'{format_gpu(of)} {_of(who)}' for who, of in borrowed.items())}"
    if entry.dispatched > entry.queued:
        said += f", after it waited {duration(entry.dispatched - entry.queued)}"
    return Decision(
        now, "placement", said, (tenant,), pool=pool, subject=entry.id, milli_gpu=entry.ask,
        node="" if held is None else held.node,
    )  # fmt: skip


def _asked(pool: str, entry: Entry, now: int) -> Decision:
    tenant = entry.task.tenant
    lenders = " and ".join(who for who in _borrowed(entry) if who) or "its lender"
    said = (
        f"job {entry.id} of {tenant} is asked to save its state within {duration(CHECKPOINT_NS)} and to wait again, "
        f"since {lenders} needs back what it borrows"
    )
    return Decision(now, "loan", said, (tenant,), pool=pool, subject=entry.id, milli_gpu=entry.ask)


def _borrowed(entry: Entry) -> dict[str, int]:
    """What it borrows, by lender."""
    found: dict[str, int] = {}
    loan = entry.running
    while loan is not None:
        found[loan.lender] = found.get(loan.lender, 0) + loan.milli_gpu
        loan = loan.following
    return found


def _of(lender: str) -> str:
    return f"of {lender}" if lender else "of the unowned part"
