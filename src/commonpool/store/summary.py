"""The arithmetic of a usage table, the same for every store: sums in whole numbers, quantiles, cost, the total line."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.pricing import round_lines
from commonpool.store import audit
from commonpool.store.contract import (
    DIMENSIONS,
    FILTERABLE,
    RECORD_FILTERS,
    Filters,
    QueryError,
    UsageRow,
    UsageTable,
)

Keys = tuple[str, ...]
Quantiles = tuple[int | None, int | None]  # p50, p99

PERCENTS = (50, 99)
NS_PER_DAY = 24 * NS_PER_HOUR
NS_MAX = 2**63 - 1
# What a lender's line can be split by: the rest (app, tier, ...) belongs to the borrower.
LENDER_DIMENSIONS = frozenset({"tenant", "model", "version", "pool", "hour", "day"})


class Sums(msgspec.Struct):
    """What one line adds up. `exact_cost` is in 1 / COST_UNIT micro-units."""

    requests: int = 0
    attempts: int = 0
    dispatched: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    milli_gpu_ns: int = 0
    exact_cost: int = 0
    borrowed_milli_gpu_ns: int = 0
    lent_milli_gpu_ns: int = 0
    wait_ns_sum: int = 0
    wait_ns_max: int = 0

    def add(self, other: "Sums") -> None:
        """Adds another line to this one."""
        for name in self.__struct_fields__:
            if name != "wait_ns_max":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait_ns_max = max(self.wait_ns_max, other.wait_ns_max)


class Query(msgspec.Struct, frozen=True):
    """A valid question. `lenders` says whether its lines can show what was lent."""

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    filters: Filters

    @property
    def lenders(self) -> bool:
        return "tenant" in self.by and LENDER_DIMENSIONS.issuperset((*self.by, *self.filters))


def query(by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> Query:
    """Checks a question. QueryError names what is wrong and what is allowed."""
    check_names("Usage cannot be grouped by", by, DIMENSIONS)
    check_names("Usage cannot be filtered by", filters, FILTERABLE)
    check_lists(filters)
    check_range(since_ns, until_ns)
    return Query(tuple(dict.fromkeys(by)), since_ns, until_ns, filters)


def check_names(cannot: str, names: Iterable[str], allowed: Sequence[str]) -> None:
    """QueryError, which begins with `cannot`, where one of the names is not allowed."""
    for name in names:
        if name not in allowed:
            raise QueryError(f"{cannot} {name!r}; allowed are {', '.join(allowed)}.")


def check_lists(filters: Filters) -> None:
    """QueryError where a filter is a text, of which each letter would be a value."""
    for name, values in filters.items():
        if isinstance(values, str):
            raise QueryError(f"The filter {name!r} is a list of values, not the single text {values!r}.")


def check_range(since_ns: int, until_ns: int) -> None:
    """QueryError where a time is no 64-bit number of nanoseconds since 1970."""
    for name, value in (("since_ns", since_ns), ("until_ns", until_ns)):
        if not 0 <= value <= NS_MAX:
            raise QueryError(f"{name} is {value}; a time is a number of nanoseconds from 0 to {NS_MAX}.")


def check_filters(filters: Filters) -> None:
    """QueryError where single attempts cannot be found by these."""
    check_names("Records cannot be filtered by", filters, RECORD_FILTERS)


def check_audit(filters: Filters, since_ns: int, until_ns: int) -> None:
    """QueryError where this cannot be asked of the audit log."""
    check_names("The audit log cannot be filtered by", filters, audit.FILTERABLE)
    check_range(since_ns, until_ns)


def hour_label(hour: int) -> str:
    """The hour that begins `hour` hours after 1970, UTC."""
    return datetime.fromtimestamp(hour * NS_PER_HOUR // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:00Z")


def day_label(day: int) -> str:
    """The day that begins `day` days after 1970, UTC."""
    return datetime.fromtimestamp(day * NS_PER_DAY // NS_PER_S, UTC).strftime("%Y-%m-%d")


def table(
    question: Query, lines: Mapping[Keys, Sums], quantiles: Mapping[Keys, Quantiles], overall: Quantiles
) -> UsageTable:
    """The usage table of these lines. `quantiles` are of each line's waits, `overall` of all waits together."""
    total = Sums()
    for sums in lines.values():
        total.add(sums)
    costs = round_lines({keys: sums.exact_cost for keys, sums in lines.items()})
    rows = tuple(
        _row(keys, lines[keys], quantiles.get(keys, (None, None)), costs[keys], lenders=question.lenders)
        for keys in sorted(lines)
    )
    return UsageTable(
        by=question.by,
        since_ns=question.since_ns,
        until_ns=question.until_ns,
        rows=rows if question.by else (),
        total=_row((), total, overall, sum(costs.values()), lenders=question.lenders),
    )


def _row(keys: Keys, sums: Sums, quantiles: Quantiles, cost_micro: int, *, lenders: bool) -> UsageRow:
    return UsageRow(
        keys=keys,
        requests=sums.requests,
        attempts=sums.attempts,
        dispatched=sums.dispatched,
        tokens_in=sums.tokens_in,
        tokens_cached=sums.tokens_cached,
        tokens_out=sums.tokens_out,
        milli_gpu_ns=sums.milli_gpu_ns,
        borrowed_milli_gpu_ns=sums.borrowed_milli_gpu_ns,
        lent_milli_gpu_ns=sums.lent_milli_gpu_ns if lenders else None,
        wait_ns_mean=sums.wait_ns_sum // sums.dispatched if sums.dispatched else None,
        wait_ns_p50=quantiles[0],
        wait_ns_p99=quantiles[1],
        wait_ns_max=sums.wait_ns_max if sums.dispatched else None,
        cost_micro=cost_micro,
    )
