"""What goes into the audit log, and when: changes before they are made, everything else within a second.

A page that is open or a scraper asks the same thing again and again. The first time is an entry at once; what the same
caller asks again of the same kind about the same tenant, with the same outcome, is counted, and is one entry a minute.
So the log grows with what is done, not with how often somebody looks. Should the process be killed, at most the count
of the last minute is lost; what was done is there.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from commonpool.access.callers import Caller
from commonpool.access.permissions import Permission
from commonpool.core.keys import redact
from commonpool.core.model import NS_PER_S
from commonpool.store.audit import EMPTY, AuditEntry, AuditStore, Fault, Head, Outcome, chained, faults
from commonpool.store.contract import StoreError

COUNT_NS: Final = 60 * NS_PER_S  # what is alike within this is counted
HEAD_NS: Final = 3600 * NS_PER_S  # how often the head is published, at most
POLL_S: Final = 1.0
ALIKE_MAX: Final = 10_000  # kinds of decisions that are counted at a time; beyond, what was counted is written early
DUE_MAX: Final = 10_000  # entries that wait while the store is away; beyond, decisions are only counted as lost
TEXT_MAX: Final = 200  # of what a caller sends and the log repeats
PAGE: Final = 5000
VERIFIED_MAX: Final = 100_000  # entries in one go: about two seconds
FAULTS_MAX: Final = 1000  # of one go; whoever reads that many knows enough
HEADS_MAX: Final = 100  # that are remembered of a log that is tampered with again and again


class Decided(msgspec.Struct, frozen=True):
    """Whether this caller may do that to a tenant, "" for the platform or several. The rest is what HTTP says."""

    caller: Caller
    permission: Permission
    tenant: str
    allowed: bool
    policies: tuple[str, ...] = ()
    method: str = ""
    path: str = ""
    peer: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What is wrong with a part of the log, up to this head. `more`: there may be entries behind it."""

    faults: tuple[Fault, ...]
    head: Head
    more: bool


class _Counted(msgspec.Struct):
    """Decisions alike since the entry of the first of them; `again` is the one that counts the others."""

    since_ns: int
    again: AuditEntry | None = None


_Alike = tuple[str, str, str, Outcome]


class AuditLog:
    """Writes decisions into a store, in threads. `clock` gives nanoseconds since the epoch.

    `publish` is told the head, once an hour while the log grows. `trouble` says why it cannot be written, None where it
    can; `tampered` that somebody else has written in it while this process did.
    """

    def __init__(
        self, store: AuditStore, clock: Callable[[], int], publish: Callable[[Head], None] = lambda _: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._publish = publish
        self._alike: dict[_Alike, _Counted] = {}
        self._due: list[AuditEntry] = []
        self._lost = 0
        self._writing = asyncio.Lock()
        self._head = store.audit_head()
        self._lost_heads: list[Head] = []  # that were there, and are not any more
        self._published = (0, EMPTY)
        self.trouble: str | None = None
        self.tampered: str | None = None

    def note(self, decided: Decided) -> None:
        """Will be written within a second, or is counted with others alike. Nothing is waited for."""
        entry = self._entry(decided)
        key = entry.caller, entry.action, entry.tenant, entry.outcome
        counted = self._alike.get(key)
        if counted is None:
            if len(self._alike) >= ALIKE_MAX:
                self._close_counts(self._clock() + COUNT_NS)
                self._alike.clear()
            self._alike[key] = _Counted(entry.at_ns)
            self._add(entry)
        elif counted.again is None:
            counted.again = entry
        else:
            count = counted.again.count + 1
            counted.again = msgspec.structs.replace(counted.again, count=count, until_ns=entry.at_ns)

    async def keep(self, decided: Decided) -> None:
        """Returns when it is written, so that it can be done. Raises StoreError: then it must not be."""
        async with self._writing:
            await self._append([self._entry(decided)])

    async def run(self) -> None:
        """Write what is due, again and again, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.write()

    async def write(self, *, all_of_it: bool = False) -> None:
        """Write what is due; with `all_of_it` what is still counted too. Where that cannot be, `trouble` says why."""
        self._close_counts(self._clock() + (COUNT_NS if all_of_it else 0))
        async with self._writing:
            due, lost = len(self._due), self._lost
            if not due:
                return
            batch = [*self._due, *self._lost_entry(lost)]
            try:
                await self._append(batch)
            except StoreError as error:
                self.trouble = f"The audit log cannot be written, so nothing can be changed: {error}"
                return
            del self._due[:due]  # more may have come since
            self._lost -= lost

    async def verify(self, start: Head = EMPTY, kept: Iterable[Head] = (), limit: int = VERIFIED_MAX) -> Verdict:
        """Whether the entries behind a head are as they were written, `limit` of them at most.

        `kept` are heads that somebody kept. What this process wrote last is known to it, so what is cut off while it
        runs is noticed, too.
        """
        heads = [self._head, *self._lost_heads, *kept]

        def look() -> Verdict:
            entries = list(_behind(self._store, start, limit))
            more = len(entries) == limit
            *found, head = faults(entries, heads, start, to_its_end=not more)
            return Verdict(tuple(found[:FAULTS_MAX]), head, more)  # type: ignore[arg-type] # a head is last, and only there

        return await asyncio.to_thread(look)

    def _entry(self, decided: Decided) -> AuditEntry:
        now_ns = self._clock()
        return AuditEntry(
            at_ns=now_ns,
            until_ns=now_ns,
            count=1,
            caller=_clean(decided.caller.name),
            action=decided.permission.value,
            tenant=decided.tenant,
            outcome="allowed" if decided.allowed else "denied",
            method=decided.method,
            path=_clean(redact(decided.path)),
            peer=decided.peer,
            policies=decided.policies,
        )

    def _add(self, entry: AuditEntry) -> None:
        if len(self._due) < DUE_MAX:
            self._due.append(entry)
        else:
            self._lost += entry.count

    def _lost_entry(self, lost: int) -> list[AuditEntry]:
        now_ns = self._clock()
        return [AuditEntry(now_ns, now_ns, lost, caller="", action="", tenant="", outcome="lost")] if lost else []

    def _close_counts(self, now_ns: int) -> None:
        for key, counted in list(self._alike.items()):
            if now_ns - counted.since_ns < COUNT_NS:
                continue
            if counted.again is None:
                del self._alike[key]
            else:
                self._add(counted.again)
                self._alike[key] = _Counted(self._clock())

    async def _append(self, batch: list[AuditEntry]) -> None:
        known = self._head
        self._head, still_there = await asyncio.to_thread(_append, self._store, batch, known)
        self.trouble = None
        if not still_there and len(self._lost_heads) < HEADS_MAX:
            self._lost_heads.append(known)
            self.tampered = (
                f"The audit log was changed in the store while the product ran: entry {known.number} is not there as it"
                " was written; `commonpool audit verify` says where else."
            )
        last_ns, published = self._published
        if self._head != published and self._clock() - last_ns >= HEAD_NS:
            self._published = self._clock(), self._head
            self._publish(self._head)


def _append(store: AuditStore, batch: Sequence[AuditEntry], known: Head) -> tuple[Head, bool]:
    """The new head, and whether what was the head is in the log still."""
    head = store.add_audit(batch)
    if head == [*chained(batch, known)][-1].head or known == EMPTY:
        return head, True
    # A commit whose answer was lost may have added more than is known of here, and that is no harm.
    return head, any(entry.head == known for entry in store.audit_chain(known.number - 1, 1))


def _behind(store: AuditStore, start: Head, limit: int) -> Iterator[AuditEntry]:
    """The entries behind a head."""
    after, left = start.number, limit
    while left and (page := store.audit_chain(after, min(PAGE, left))):
        yield from page
        after, left = page[-1].number, left - len(page)


def _clean(text: str) -> str:
    """As every store takes it and no screen is fooled by it."""
    shown = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in shown)
