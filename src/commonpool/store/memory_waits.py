"""The waits in memory: the part of `store.memory` that keeps them."""

from collections.abc import Iterator, Mapping, Sequence

from commonpool.core.model import Tier, UsageRecord
from commonpool.core.waits import End, Judged, Place, Row, Tally
from commonpool.store import wait_rows
from commonpool.store.hour import BATCH, ended
from commonpool.store.wait_rows import Came, Filters, Made, Range
from commonpool.store.waits import Counted, Uncounted, WaitTable


class MemoryRows:
    """`wait_rows.Rows` in memory. `came` are the records, in order: the first has the number 1."""

    def __init__(self) -> None:
        self.came: list[UsageRecord] = []
        self._made = Made()
        self._rows: dict[int, dict[Place, Row]] = {}

    def made(self) -> Made:
        """See `Rows.made`."""
        return self._made

    def make(self, made: Made) -> None:
        """See `Rows.make`."""
        self._made = made

    def left(self, seq: int) -> Uncounted:
        """See `Rows.left`."""
        return Uncounted(len(self.came) - seq, ended(self.came[seq])) if len(self.came) > seq else Uncounted()

    def ends(self, seq: int, limit: int) -> Came:
        """See `Rows.ends`."""
        came = self.came[seq : seq + limit]
        return Came(len(came), seq + len(came), [_end(record) for record in came if record.endpoint not in BATCH])

    def read(self, of: Range, filters: Filters) -> Iterator[tuple[Place, Row]]:
        """See `Rows.read`."""
        span_ns, start_ns, end_ns = of
        for place, row in sorted(self._rows.get(span_ns, {}).items()):
            series = dict(zip(("tenant", "model", "tier"), place[1:], strict=True))
            if start_ns <= place[0] < end_ns and all(series[name] in filters[name] for name in filters):
                yield place, row

    def judged(self, of: Range) -> Iterator[tuple[str, str, Judged]]:
        """See `Rows.judged`."""
        for (_, tenant, _, tier), row in self.read(of, {}):
            tally = Tally()
            tally.take(row)
            yield tenant, tier, tally.judged

    def replace(self, span_ns: int, rows: Mapping[Place, Row]) -> None:
        """See `Rows.replace`."""
        self._rows.setdefault(span_ns, {}).update(rows)

    def first(self, span_ns: int, since_ns: int) -> int | None:
        """See `Rows.first`."""
        return min((place[0] for place in self._rows.get(span_ns, ()) if place[0] >= since_ns), default=None)

    def last(self, span_ns: int) -> int | None:
        """See `Rows.last`."""
        return max((place[0] for place in self._rows.get(span_ns, ())), default=None)

    def forget(self, span_ns: int, before_ns: int) -> None:
        """See `Rows.forget`."""
        rows = self._rows.get(span_ns, {})
        self._rows[span_ns] = {place: row for place, row in rows.items() if place[0] >= before_ns}


class MemoryWaits:
    """A `waits.WaitStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = MemoryRows()

    def count_waits(self, tiers: Mapping[str, Tier], limit: int) -> Counted:
        """See `WaitStore.count_waits`."""
        return wait_rows.count(self._waits, tiers, limit)

    def uncounted_waits(self) -> Uncounted:
        """See `WaitStore.uncounted_waits`."""
        return wait_rows.uncounted(self._waits)

    def roll_waits(self, until_ns: int) -> bool:
        """See `WaitStore.roll_waits`."""
        return wait_rows.roll(self._waits, until_ns)

    def forget_waits(self, windows_before_ns: int, hours_before_ns: int) -> None:
        """See `WaitStore.forget_waits`."""
        wait_rows.forget(self._waits, windows_before_ns, hours_before_ns)

    def waits(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> WaitTable:
        """See `WaitStore.waits`."""
        return wait_rows.table(self._waits, by, since_ns, until_ns, filters)

    def judged_waits(self, since_ns: int, until_ns: int) -> Mapping[tuple[str, str], Judged]:
        """See `WaitStore.judged_waits`."""
        return wait_rows.judged(self._waits, since_ns, until_ns)


def _end(record: UsageRecord) -> End:
    return End(
        record.tenant,
        record.model,
        record.tier,
        record.replica,
        record.outcome,
        record.reason,
        ended(record),
        record.wait_ns,
        record.first_token_ns,
        record.total_ns,
    )
