"""Lines of log about requests that were refused or failed: what, whose, why, and nothing of what was asked.

Of those alike (of one tenant, with one code) a line is written every ten seconds; it says how many there were since the
last one. So a client that is refused a thousand times a second costs no more than one that is refused now and then.
"""

from collections.abc import Callable
from typing import Final

import structlog

from commonpool.core.model import NS_PER_S, Request
from commonpool.gateway.errors import ApiError

EVERY_NS: Final = 10 * NS_PER_S
ALIKE_MAX: Final = 1000  # kinds that are remembered; more, and it begins anew
_OURS_FROM: Final = 500

log = structlog.get_logger()


class _Alike:
    __slots__ = ("told_ns", "untold")

    def __init__(self, told_ns: int) -> None:
        self.told_ns = told_ns
        self.untold = 0


class Failures:
    """`monotonic` gives nanoseconds."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._alike: dict[tuple[str, str], _Alike] = {}

    def tell(self, request: Request, error: ApiError, trace_id: str = "") -> None:
        """A request that was identified and understood ends with this error."""
        facts = {"app": request.app, "model": request.model, "tier": request.tier}
        self.tell_of(request.id, request.tenant, error, **facts, **({"trace_id": trace_id} if trace_id else {}))

    def tell_of(self, request_id: str, tenant: str, error: ApiError, **facts: str) -> None:
        """As `tell`; `facts` is what is known of it beside."""
        now, kind = self._monotonic(), (tenant, error.code)
        alike = self._alike.get(kind)
        if alike is None:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            alike = self._alike[kind] = _Alike(now)
        elif now - alike.told_ns < EVERY_NS:
            alike.untold += 1
            return
        others, alike.untold, alike.told_ns = alike.untold, 0, now
        write = log.warning if error.status >= _OURS_FROM else log.info
        write(
            "request failed" if error.status >= _OURS_FROM else "request refused",
            request_id=request_id,
            tenant=tenant,
            status=error.status,
            code=error.code,
            alike_before=others,
            **facts,
        )
