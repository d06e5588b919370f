"""What a gateway elsewhere overhears for prompt logs, on its way to the core.

It is told by calls of its own: requests and their ends do not wait behind texts. What waits is bounded.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

from commonpool.cluster import messages
from commonpool.cluster.messages import Overheard
from commonpool.store.prompts import Spoken

PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
BATCH_BYTES: Final = 4 * 1024 * 1024
TELL_S: Final = 0.25
AGAIN_S: Final = 2.0


class Overhearing:
    """Belongs to one event loop. `tell` is the core's; it may raise anything while that is away."""

    def __init__(
        self,
        tell: Callable[[bytes], Awaitable[object]],
        *,
        bytes_max: int = PENDING_BYTES_MAX,
        again_s: float = AGAIN_S,
    ) -> None:
        self._tell = tell
        self._bytes_max = bytes_max
        self._again_s = again_s
        self._pending: deque[Spoken] = deque()
        self._bytes = 0
        self._lost: Counter[str] = Counter()

    def hear(self, spoken: Spoken) -> None:
        """Tell it, where there is room."""
        if self._bytes + spoken.size > self._bytes_max:
            self.lose(spoken.head.tenant, 1)
            return
        self._pending.append(spoken)
        self._bytes += spoken.size

    def lose(self, tenant: str, count: int) -> None:
        self._lost[tenant] += count

    async def run(self) -> None:
        """Tell what is heard, again and again, until cancelled."""
        while True:
            await asyncio.sleep(TELL_S)
            try:
                await self.tell()
            except Exception:  # noqa: BLE001 - whatever Ray raises, the core is not there now
                await asyncio.sleep(self._again_s)

    async def tell(self) -> None:
        """Tell all that was heard until now. Raises what the core's call does; then nothing of it is lost."""
        while self._pending or self._lost:
            batch: list[Spoken] = []
            size = 0
            for spoken in self._pending:
                if batch and size + spoken.size > BATCH_BYTES:
                    break
                batch.append(spoken)
                size += spoken.size
            lost = dict(self._lost)
            await self._tell(messages.encode(Overheard(batch, lost)))
            for _ in batch:
                self._bytes -= self._pending.popleft().size
            self._lost -= Counter(lost)
