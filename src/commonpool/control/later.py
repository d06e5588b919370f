"""What was taken to be answered later: kept, handed in bit by bit behind all else of its tenant, and its answers.

A request is in the store before its client hears that it was taken, and its answer before anybody hears that it has
one; both are encrypted with a key of the tenant's for nothing else. So whatever ends the product, the next start finds
what is left to do.
Few of a tenant and model are at the desk at a time, and the others stay in the store: they cost no memory there, and
what is at the desk counts against limits as any other request.

One that cannot be handed in now is tried again, until its window is over; then that is its answer. The core makes
records of attempts; of what ends without one the record is made here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from commonpool.access.secrets import SecretsError, Vault
from commonpool.core import admission, records
from commonpool.core.effects import Refuse
from commonpool.core.machine import Machine
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Outcome, Reason, Request, UsageRecord
from commonpool.core.records import STATUS_CLIENT_GONE, STATUS_OF
from commonpool.store.contract import StoreError
from commonpool.store.later import (
    LaterHead,
    LaterPlace,
    LaterStore,
    LaterText,
    Reply,
    SealedLater,
    Server,
    Stage,
    Underway,
    Work,
)

WINDOW_NS: Final = 24 * NS_PER_HOUR  # for an answer, as that of OpenAI's batches
KEEP_NS: Final = 24 * NS_PER_HOUR  # of an answer
COUNT_MAX: Final = 10_000  # of a tenant, answers included
BYTES_MAX: Final = 256 * 1024 * 1024  # as above, as they are kept
AT_ONCE: Final = 2  # of a tenant's, that are read or written at a time
THREADS: Final = 4  # that read and write; they are for nothing else, so that nothing else waits for them
AT_DESK: Final = 2  # of a tenant and model, beside those that run: one is next, and one is there when it runs
ROUND_S: Final = 1.0
SWEEP_NS: Final = 10 * NS_PER_S
RETRY_NS: Final = 60 * NS_PER_S  # where nobody says when it is worth trying again
RETRY_S: Final = 1.0  # while the store cannot be written
CLOSE_S: Final = 5.0
STATUS_MISSED: Final = 504
PASSES: Final = (429, 503)  # a refusal with this status is for now

T = TypeVar("T")

log = structlog.get_logger()


class LaterCore(Protocol):
    """What is needed of the owner of the core."""

    @property
    def machine(self) -> Machine:
        """What it asks to decide."""

    def settle(self, record: UsageRecord) -> None:
        """Keep the record of an attempt that the machine does not know."""


class _Asked(msgspec.Struct, frozen=True):
    """What is sealed before the answer. The request is the one beside it, where others might change it."""

    request: Request
    text: LaterText


class _Line:
    """What is kept of a tenant and model, in the order in which it was taken."""

    def __init__(self) -> None:
        self.waiting: deque[_Kept] = deque()
        self.at_desk = 0
        self.not_before_ns = 0
        self.numbers = 0

    def ahead(self, kept: "_Kept") -> int:
        """How many are before it, those that were forgotten since it came included."""
        return self.at_desk + (kept.number - self.waiting[0].number if kept.queued and self.waiting else 0)


class _Kept:
    """One of them, as its errand sees it: a `store.later.Owner`."""

    def __init__(self, later: "Later", head: LaterHead, line: _Line, *, before: bool = False) -> None:
        self.head = head
        self.line = line
        self.number = line.numbers
        line.numbers += 1
        self.before = before  # it was taken before this start: how often it was tried is in the records
        self.attempts = 0
        self.errand: Underway | None = None
        self.queued = False
        self.at_desk = False
        self.running = False
        self.why = ""  # it was refused last
        self._later = later

    @property
    def stage(self) -> Stage:
        if self.head.status:
            return "answered"
        return "running" if self.running else "waiting"

    def leave_desk(self) -> None:
        if self.at_desk:
            self.at_desk = False
            self.line.at_desk -= 1

    # -- Owner ---------------------------------------------------------------------------------------------------------

    def runs(self, attempt: int) -> None:
        self.attempts = attempt
        self.running = True
        self.leave_desk()
        self._later.wake()

    def answered(self, reply: Reply, then: Callable[[], None]) -> None:
        self.errand = None
        self.leave_desk()
        self._later.spawn(self._later.end(self, reply, then))
        self._later.wake()

    def refused(self, refusal: Refuse, reply: Reply) -> bool:
        self.errand = None
        self.running = False
        self.leave_desk()
        return self._later.refused(self, refusal, reply)

    def stopped(self) -> None:
        self.errand = None
        self.running = False
        self.leave_desk()


class Later:
    """All that is answered later (`store.later.Keeper`). Belongs to one event loop; what blocks runs in a thread.

    `clock` gives nanoseconds since the epoch. `attempts(id)` are the records of a request. `settled` says whether what
    an earlier run left has its records, so that they can be asked. `spawn` runs a coroutine beside everything else.
    """

    def __init__(
        self,
        store: LaterStore,
        vault: Vault,
        desk: LaterCore,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        attempts: Callable[[str], Awaitable[Sequence[UsageRecord]]],
        settled: Callable[[], bool],
        count_max: int = COUNT_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._store = store
        self._vault = vault
        self._desk = desk
        self._clock = clock
        self.spawn = spawn
        self._attempts = attempts
        self._settled = settled
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._server: Server | None = None
        self._kept: dict[str, _Kept] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        self._threads = ThreadPoolExecutor(THREADS, "later")
        self._turns: dict[str, asyncio.Semaphore] = {}  # by tenant
        self._held: dict[str, tuple[int, int]] = {}  # by tenant: how many, and how many bytes
        self._woken = asyncio.Event()
        self._ending = 0  # answers that are being kept
        self._swept_ns = 0
        self.trouble: str | None = None

    @property
    def kept(self) -> Mapping[str, tuple[int, int]]:
        """By tenant, how many are kept and how many bytes they have, answers included."""
        return self._held

    def begin(self) -> None:
        """Take up what was kept before."""
        for head in self._store.laters():
            kept = self._add(head, before=True)
            if not head.status:
                self._queue(kept)

    async def run(self) -> None:
        """Hand in what waits, and end what has waited for too long, again and again, until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.round()
            except Exception:
                log.exception("what is to be answered later could not be looked at")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await self._woken.wait()

    async def round(self) -> None:
        """Hand in what may be now; end what is over, from time to time."""
        now = self._clock()
        if now - self._swept_ns >= SWEEP_NS:
            self._swept_ns = now
            await self._sweep(now)
        if self._settled():
            for key, line in tuple(self._lines.items()):
                await self._hand_in(line)
                if not (line.waiting or line.at_desk):
                    self._lines.pop(key, None)

    async def close(self) -> None:
        """Return when every answer that there is, is kept, as far as the store keeps anything."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._ending:  # noqa: ASYNC110 - at the very end, once
                    await asyncio.sleep(0.01)

    def wake(self) -> None:
        self._woken.set()

    # -- Keeper --------------------------------------------------------------------------------------------------------

    def served_by(self, server: Server) -> None:
        """See `Keeper.served_by`."""
        self._server = server

    def takes(self, tenant: str, size: int) -> bool:
        """See `Keeper.takes`."""
        count, held = self._held.get(tenant, (0, 0))
        return self._vault.ready and count < self._count_max and held + size <= self._bytes_max

    async def keep(self, request: Request, text: LaterText) -> LaterPlace | None:
        """See `Keeper.keep`."""
        packed = msgspec.msgpack.encode(_Asked(request, text))
        if not self.takes(request.tenant, len(packed)):
            return None
        now = self._clock()
        kept = self._add(LaterHead(request, now, now + WINDOW_NS, size=len(packed)))
        try:
            self._become(kept, await self._apart(request.tenant, self._write, kept.head, packed))
        except BaseException:
            self._remove(kept)
            raise
        self._queue(kept)
        self.wake()
        return self._place(kept)

    def find(self, tenant: str, app: str, id_: str) -> LaterPlace | None:
        """See `Keeper.find`."""
        kept = self._kept.get(id_)
        if kept is None or (kept.head.request.tenant, kept.head.request.app) != (tenant, app):
            return None
        return self._place(kept)

    async def reply(self, id_: str) -> Reply | None:
        """See `Keeper.reply`."""
        kept = self._kept.get(id_)
        return None if kept is None else await self._apart(kept.head.request.tenant, self._read_reply, id_)

    async def forget(self, id_: str) -> None:
        """See `Keeper.forget`."""
        kept = self._kept.get(id_)
        if kept is None:
            return
        await self._apart(kept.head.request.tenant, self._store.delete_later, id_)
        if id_ not in self._kept:
            return
        self._remove(kept)
        errand, kept.errand = kept.errand, None
        kept.leave_desk()
        if not (kept.head.status or kept.running):
            self._settle(kept, Outcome.CANCELLED, STATUS_CLIENT_GONE, "")
        if errand is not None:
            errand.drop()
        self.wake()

    # -- what becomes of it --------------------------------------------------------------------------------------------

    def refused(self, kept: _Kept, refusal: Refuse, reply: Reply) -> bool:
        """It does not run now. Where that may pass it is tried again; whether it never will."""
        if kept.head.id not in self._kept:
            return False
        if STATUS_OF[refusal.reason] in PASSES:
            kept.why = refusal.message
            self._queue(kept, first=True)
            kept.line.not_before_ns = self._clock() + (refusal.retry_after_ns or RETRY_NS)
            return False
        self._settle(kept, Outcome.REFUSED, reply.status, refusal.reason)
        self.spawn(self.end(kept, reply))
        return True

    async def end(self, kept: _Kept, reply: Reply, then: Callable[[], None] = lambda: None) -> None:
        """Keep its answer. `then` is called when that is done, or cannot be now; it is tried again."""
        self._ending += 1
        try:
            now = self._clock()
            head = msgspec.structs.replace(kept.head, status=reply.status, until_ns=now + KEEP_NS, size=len(reply.body))
            while kept.head.id in self._kept:
                try:
                    written = await self._apart(head.request.tenant, self._write, head, reply.body)
                except (StoreError, SecretsError) as error:
                    self.trouble = f"Answers for later cannot be kept: {error}"
                    self._call(then)
                    then = _nothing
                    await asyncio.sleep(RETRY_S)
                    continue
                self.trouble = None
                self._become(kept, written)
                break
        finally:
            self._ending -= 1
            self._call(then)
        kept.running = False

    def _call(self, then: Callable[[], None]) -> None:
        try:
            then()
        except Exception:
            log.exception("the end of an attempt could not be told")

    async def _sweep(self, now: int) -> None:
        """End what has waited for too long, and forget answers that were kept for long enough."""
        for kept in [each for each in self._kept.values() if each.head.until_ns <= now and not each.running]:
            if kept.head.status:
                try:
                    await self._apart(kept.head.request.tenant, self._store.delete_later, kept.head.id)
                except StoreError as error:
                    self.trouble = f"Answers that were kept for long enough cannot be deleted: {error}"
                    return
                self._remove(kept)
                continue
            errand, kept.errand = kept.errand, None
            self._unqueue(kept)
            kept.leave_desk()
            if errand is not None:
                errand.drop()
            self._settle(kept, Outcome.REFUSED, STATUS_MISSED, Reason.PROMISE)
            await self.end(kept, _missed(kept))

    async def _hand_in(self, line: _Line) -> None:
        while line.waiting and line.at_desk < AT_DESK and self._clock() >= line.not_before_ns:
            kept = line.waiting[0]
            if self._full_without(kept):
                return
            self._unqueue(kept)
            line.at_desk += 1
            kept.at_desk = True
            if not await self._hand_over(kept):
                return

    def _full_without(self, kept: _Kept) -> bool:
        """Whether its tenant keeps so much beside it that there is no room for its answer."""
        _, held = self._held[kept.head.request.tenant]
        if held - kept.head.size < self._bytes_max:
            return False
        kept.why = f"Its tenant keeps {self._bytes_max} bytes or more for later; delete answers that were fetched."
        return True

    async def _hand_over(self, kept: _Kept) -> bool:
        """Hand one in, whatever becomes of it then; False where nothing can be handed in now."""
        try:
            return await self._try_to_hand_over(kept)
        except StoreError as error:
            self.trouble = f"What was taken for later cannot be read: {error}"
            self._put_back(kept)
            return False
        except Exception:  # it does not open, or is nothing that can be asked; others shall not wait for it
            log.exception("what was taken for later cannot be done", id=kept.head.id)
            kept.leave_desk()
            if kept.head.id in self._kept and not kept.head.status:
                self._settle(kept, Outcome.FAILED, 500, "")
                await self.end(kept, _lost())
            return True

    async def _try_to_hand_over(self, kept: _Kept) -> bool:
        id_ = kept.head.id
        asked = await self._apart(kept.head.request.tenant, self._read, id_)
        if kept.before and not await self._take_up(kept):
            return True
        if asked is None or id_ not in self._kept or kept.head.status:
            kept.leave_desk()
            return True
        head = msgspec.structs.replace(kept.head, request=asked.request)
        errand = None if self._server is None else self._server.serve(Work(head, asked.text, kept.attempts), kept)
        if errand is None:
            self._put_back(kept)
            return False
        if kept.at_desk or kept.running:
            kept.errand = errand
        return True

    async def _take_up(self, kept: _Kept) -> bool:
        """Find out how often it was tried before this start. False where it was answered, and the answer was lost."""
        known = await self._attempts(kept.head.id)
        kept.attempts = max((record.attempt for record in known), default=0)
        kept.before = False
        if any(record.outcome is Outcome.COMPLETED for record in known):
            kept.leave_desk()
            await self.end(kept, _lost())
            return False
        return True

    def _put_back(self, kept: _Kept) -> None:
        kept.leave_desk()
        if kept.head.id in self._kept:
            kept.line.not_before_ns = self._clock() + NS_PER_S
            self._queue(kept, first=True)

    def _settle(self, kept: _Kept, outcome: Outcome, status: int, reason: str) -> None:
        head = kept.head
        state, now = self._desk.machine.state, self._clock()
        self._desk.settle(
            records.unanswered(state, head.request, kept.attempts, head.taken_ns, outcome, status, reason, now)
        )

    # -- what is kept --------------------------------------------------------------------------------------------------

    def _add(self, head: LaterHead, *, before: bool = False) -> _Kept:
        line = self._lines.setdefault((head.request.tenant, head.request.model), _Line())
        kept = self._kept[head.id] = _Kept(self, head, line, before=before)
        self._count(kept, 1)
        return kept

    def _remove(self, kept: _Kept) -> None:
        if self._kept.pop(kept.head.id, None) is not None:
            self._unqueue(kept)
            self._count(kept, -1)

    def _become(self, kept: _Kept, head: LaterHead) -> None:
        if head.id in self._kept:
            self._count(kept, -1)
            kept.head = head
            self._count(kept, 1)

    def _count(self, kept: _Kept, sign: int) -> None:
        tenant = kept.head.request.tenant
        count, held = self._held.get(tenant, (0, 0))
        self._held[tenant] = count + sign, held + sign * kept.head.size

    def _queue(self, kept: _Kept, *, first: bool = False) -> None:
        head = kept.head
        kept.queued = True
        kept.line = self._lines.setdefault((head.request.tenant, head.request.model), kept.line)
        waiting = kept.line.waiting
        if first:  # with those that came back before it
            waiting.insert(next((at for at, each in enumerate(waiting) if each.number > kept.number), 0), kept)
        else:
            waiting.append(kept)

    def _unqueue(self, kept: _Kept) -> None:
        if kept.queued:
            kept.queued = False
            kept.line.waiting.remove(kept)

    def _place(self, kept: _Kept) -> LaterPlace:
        now, retry_ns = self._clock(), NS_PER_S
        if kept.stage == "waiting":
            expected_ns = admission.answered_in(self._desk.machine.state, kept.head.request, kept.line.ahead(kept))
            retry_ns = max(expected_ns, kept.line.not_before_ns - now)
        return LaterPlace(kept.head, kept.stage, min(retry_ns, max(NS_PER_S, kept.head.until_ns - now)))

    async def _apart(self, tenant: str, work: Callable[..., T], *args: Any) -> T:
        """Have something of a tenant's read or written in a thread, when its turn comes."""
        async with self._turns.setdefault(tenant, asyncio.Semaphore(AT_ONCE)):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _write(self, head: LaterHead, text: bytes) -> LaterHead:
        """In a thread: what is asked, or the answer in its place."""
        sealed = self._vault.seal(_holder(head), _about(head), text)
        head = msgspec.structs.replace(head, size=len(sealed))
        entry = SealedLater(head, sealed)
        if head.status:
            self._store.end_later(entry)
        else:
            self._store.add_later(entry)
        return head

    def _read(self, id_: str) -> _Asked | None:
        """In a thread: what is asked."""
        found = self._store.later(id_)
        return None if found is None or found.head.status else msgspec.msgpack.decode(self._open(found), type=_Asked)

    def _read_reply(self, id_: str) -> Reply | None:
        """In a thread: what is answered."""
        found = self._store.later(id_)
        if found is None or not found.head.status:
            return None
        try:
            return Reply(found.head.status, self._open(found))
        except SecretsError as error:
            log.warning("an answer that is kept cannot be opened", id=id_, error=str(error))
            return _lost()

    def _open(self, found: SealedLater) -> bytes:
        return self._vault.open(_holder(found.head), _about(found.head), found.sealed)


def _holder(head: LaterHead) -> str:
    """Whose data key it is sealed with: one for nothing else, so that it outlasts that of the tenant's prompt log. No
    tenant has a colon in its name.
    """
    return f"later:{head.request.tenant}"


def _about(head: LaterHead) -> tuple[str, ...]:
    """What a seal is bound to: whose and which it is, when and what. Fields that a request may get one day are not in
    it: what was sealed before opens behind an upgrade.
    """
    request = head.request
    return request.id, request.tenant, request.app, str(head.taken_ns), str(head.until_ns), str(head.status)


def _missed(kept: _Kept) -> Reply:
    hours = (kept.head.until_ns - kept.head.taken_ns) // NS_PER_HOUR
    why = kept.why or "Other requests of the tenant came first."
    return _error(STATUS_MISSED, "later_missed", f"It could not be answered within {hours} h. {why}", "server_error")


def _lost() -> Reply:
    return _error(500, "later_lost", "What was kept of it cannot be read any more; ask again.", "server_error")


def _error(status: int, code: str, message: str, kind: str) -> Reply:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Reply(status, msgspec.json.encode({"error": error}))


def _nothing() -> None:
    pass
