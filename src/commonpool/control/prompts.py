"""The prompt logs of tenants that have switched one on: what they asked and were answered, encrypted, for them alone.

What is heard waits in memory, within a bound, and is encrypted and written by a thread a moment later: no request waits
for its entry, and what the bound has no room for is counted and lost. A log is no record of use: those are in the
journal, whatever becomes of this.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from commonpool.access.secrets import SecretsError, Vault
from commonpool.core.model import NS_PER_S
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.engines.heard import answer_of, in_one_piece
from commonpool.store.contract import StoreError
from commonpool.store.prompts import PromptHead, PromptLog, PromptPlace, PromptStore, PromptText, SealedPrompt, Spoken

PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
TENANT_BYTES_MAX: Final = 256 * 1024 * 1024  # in the store; beyond, the oldest entries go
WRITE_S: Final = 0.5
BATCH: Final = 64
TRIM_NS: Final = 600 * NS_PER_S

log = structlog.get_logger()


class Prompts:
    """All prompt logs. Belongs to one event loop. `clock` gives nanoseconds since the epoch.

    `switched(tenants)` hears whose are on, at the start and whenever that changes.
    """

    def __init__(
        self,
        store: PromptStore,
        vault: Vault,
        clock: Callable[[], int],
        switched: Callable[[frozenset[str]], None] = lambda _tenants: None,
        *,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        tenant_bytes_max: int = TENANT_BYTES_MAX,
    ) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock
        self._switched = switched
        self._pending_bytes_max = pending_bytes_max
        self._tenant_bytes_max = tenant_bytes_max
        self._pending: deque[Spoken] = deque()
        self._pending_bytes = 0
        self._held: Counter[str] = Counter()  # of these bytes, by tenant
        self._writing = asyncio.Lock()
        self._logs: dict[str, PromptLog] = {}
        self._trimmed_ns = 0
        self.lost: Counter[str] = Counter()  # by tenant, since the start
        self.trouble: str | None = None

    def begin(self) -> None:
        """Switch on what was on before."""
        self._logs = {each.tenant: each for each in self._store.prompt_logs()}
        self._switched(frozenset(self._logs))

    # -- hearing -------------------------------------------------------------------------------------------------------

    def hear(self, spoken: Spoken) -> None:
        """Keep it, where there is room."""
        tenant = spoken.head.tenant
        if tenant not in self._logs:  # it was switched off meanwhile
            return
        # A tenant may hold as much as is free beside it: nobody fills all of it, so others find room.
        held = self._held[tenant] + spoken.size
        if self._pending_bytes + spoken.size + held > self._pending_bytes_max:
            self.lose(tenant, 1)
            return
        self._pending.append(spoken)
        self._pending_bytes += spoken.size
        self._held[tenant] = held

    def lose(self, tenant: str, count: int) -> None:
        """There was no room for so many."""
        self.lost[tenant] += count

    async def run(self) -> None:
        """Write what was heard, again and again, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_S)
            await self.write()
            if self._clock() - self._trimmed_ns > TRIM_NS:
                self._trimmed_ns = self._clock()
                await self.trim()

    async def write(self) -> None:
        """Write all that was heard until now. What cannot be written now is tried again, and `trouble` says why."""
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        if not self._pending:
            return
        unsealed = None
        while self._pending:
            batch = [self._pending[at] for at in range(min(BATCH, len(self._pending)))]
            try:
                failed = await asyncio.to_thread(self._keep, batch)
            except StoreError as error:
                self.trouble = f"Prompt logs cannot be written: {error}"
                return
            for tenant, why in failed:
                self.lose(tenant, 1)
                unsealed = why
            for spoken in batch:
                self._pending.popleft()
                self._pending_bytes -= spoken.size
                self._held[spoken.head.tenant] -= spoken.size
                if not self._held[spoken.head.tenant]:
                    del self._held[spoken.head.tenant]
        self.trouble = None if unsealed is None else f"Prompt logs cannot be written: {unsealed}"

    def _keep(self, batch: Sequence[Spoken]) -> list[tuple[str, SecretsError]]:
        """Write them; returns of whom what could not be sealed, which does not hold up the others'."""
        entries = []
        failed = []
        for spoken in batch:
            status, answered = answer_of(spoken.answered)
            status = STATUS_CLIENT_GONE if spoken.gone or status is None else status
            head = msgspec.structs.replace(spoken.head, status=status)
            text = msgspec.msgpack.encode(PromptText(spoken.asked, in_one_piece(answered), spoken.cut))
            try:
                sealed = self._vault.seal(head.tenant, _about(head), text)
            except SecretsError as error:
                failed.append((head.tenant, error))
                continue
            entries.append(SealedPrompt(msgspec.structs.replace(head, size=len(sealed)), sealed))
        if entries:
            self._store.add_prompts(entries)
        return failed

    async def trim(self) -> None:
        """What is older than its tenant keeps it goes, and what is too much."""
        now = self._clock()
        for each in tuple(self._logs.values()):
            try:
                await asyncio.to_thread(
                    self._store.trim_prompts, each.tenant, now - each.keep_ns, self._tenant_bytes_max
                )
            except StoreError as error:
                log.warning("a prompt log could not be trimmed", tenant=each.tenant, error=str(error))

    # -- what tenants ask ----------------------------------------------------------------------------------------------

    def log_of(self, tenant: str) -> PromptLog | None:
        """Its log, None where that is off."""
        return self._logs.get(tenant)

    async def switch_on(self, tenant: str, keep_ns: int, by: str) -> PromptLog:
        """Keep what it asks from now on. Raises SecretsError where nothing can be encrypted, StoreError."""
        if not self._vault.ready:
            raise SecretsError(
                "A prompt log is encrypted, and there is no master key; have the operator set secrets.master_key."
            )
        known = self._logs.get(tenant)
        new = PromptLog(tenant, self._clock() if known is None else known.since_ns, keep_ns, by)
        await asyncio.to_thread(self._store.save_prompt_log, new)
        self._logs[tenant] = new
        self._switched(frozenset(self._logs))
        return new

    async def switch_off(self, tenant: str) -> None:
        """Keep nothing of what it asks from now on; what is kept stays until it is deleted. Raises StoreError."""
        await asyncio.to_thread(self._store.drop_prompt_log, tenant)
        if self._logs.pop(tenant, None) is not None:
            self._switched(frozenset(self._logs))

    async def heads(self, tenant: str, before: PromptPlace | None, limit: int) -> tuple[PromptHead, ...]:
        """Its entries, the newest first; what was heard before the call is among them."""
        await self.write()
        return await asyncio.to_thread(self._store.prompts, tenant, before, limit)

    async def kept_bytes(self, tenant: str) -> int:
        return await asyncio.to_thread(self._store.prompt_bytes, tenant)

    async def show(self, tenant: str, request_id: str) -> tuple[PromptHead, PromptText] | None:
        """An entry, opened; None where there is none. Raises SecretsError where it does not open."""
        await self.write()
        return await asyncio.to_thread(self._open, tenant, request_id)

    async def delete(self, tenant: str, request_id: str | None = None) -> int:
        """Delete an entry, or all of a tenant's and their data key with them; returns how many there were."""
        async with self._writing:  # what is heard meanwhile is sealed with another key, and is kept
            await self._write()
            count = await asyncio.to_thread(self._store.delete_prompts, tenant, request_id)
            if request_id is None:
                await asyncio.to_thread(self._vault.forget, tenant)
        return count

    def _open(self, tenant: str, request_id: str) -> tuple[PromptHead, PromptText] | None:
        found = self._store.prompt(tenant, request_id)
        if found is None:
            return None
        opened = self._vault.open(tenant, _about(found.head), found.sealed)
        return found.head, msgspec.msgpack.decode(opened, type=PromptText)


def _about(head: PromptHead) -> tuple[str, ...]:
    """What an entry is bound to: all that is told of it without its key, but for its size."""
    fields = msgspec.structs.replace(head, size=0)
    return tuple(map(str, msgspec.structs.astuple(fields)))
