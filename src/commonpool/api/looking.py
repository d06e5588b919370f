"""Finding records by what they were, in pages, without reading a whole period for one that has few of them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from commonpool.api.operations import Operations
from commonpool.core.model import UsageRecord
from commonpool.store.contract import Filters, Place

LOOKED_MAX: Final = 100_000  # records that a filter looks through at once: a few tenths of a second


class Found(msgspec.Struct, frozen=True):
    """Some records in their order, and behind which place there may be more, None for no more.

    `looked_ns` is how far it has looked where it ended for that, and not because there are `limit` of them.
    """

    records: Sequence[UsageRecord]
    after: Place | None
    looked_ns: int | None = None


async def look_through(
    operations: Operations,
    period: tuple[int, int],
    after: Place | None,
    limit: int,
    filters: Filters,
    *,
    newest: bool,
    looked_max: int = LOOKED_MAX,
) -> Found:
    """The first `limit` records behind a place, of the first `looked_max` there. Times are ns since the epoch."""
    looked_ns = None
    if filters:  # without one, as many are looked at as are found
        period, looked_ns = await _stretch(operations, period, after, looked_max, newest=newest)
    records = await operations.records(*period, after, limit, filters, newest=newest)
    if len(records) == limit:
        return Found(records, (records[-1].arrived_ns, records[-1].request_id, records[-1].attempt))
    return Found(records, None if looked_ns is None else (looked_ns, "", 0), looked_ns)


async def _stretch(
    operations: Operations, period: tuple[int, int], after: Place | None, looked_max: int, *, newest: bool
) -> tuple[tuple[int, int], int | None]:
    """The part of a period behind a place in which so many arrived, and its far end, None where that is the whole.

    The place of an end is that of no request: all that arrived at that very time is after it, and newest first before.
    """
    since_ns, until_ns = period
    if after is not None and newest:
        until_ns = min(until_ns, after[0] + bool(after[1]))
    elif after is not None:
        since_ns = max(since_ns, after[0])
    last_ns = await operations.arrival(since_ns, until_ns, looked_max, newest=newest)
    if last_ns is None:
        return (since_ns, until_ns), None
    return ((last_ns, until_ns), last_ns) if newest else ((since_ns, last_ns + 1), last_ns + 1)
