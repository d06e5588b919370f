"""What is counted of requests: cheap on the event loop, put into families only when somebody scrapes.

Label values that are not from the configuration are bounded: the first LABEL_VALUES_MAX of a label keep their names,
the rest are `other`. What was promised is judged here too, as `core.waits.judge` does: late / promised is the share of
a promise that was not kept.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from commonpool.core.model import LATER, NS_PER_S, RECALLED, Loan, Outcome, Tier, UsageRecord
from commonpool.core.pricing import COST_UNIT
from commonpool.core.waits import NO_ROOM
from commonpool.observe.exposition import CONTENT_TYPE, Counts, Family, Labels, render

__all__ = ["BUCKETS_S", "CONTENT_TYPE", "LABEL_VALUES_MAX", "OTHER", "SERIES_MAX", "TOKEN_BUCKETS_S", "Meter"]

LABEL_VALUES_MAX: Final = 1000
SERIES_MAX: Final = 2000  # combinations of tenant, model and tier; what comes later is all `other`
OTHER: Final = "other"

# From a slot that is free to a queue of an hour: LLM queues are long.
BUCKETS_S: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600,
)  # fmt: skip
# From a small model on a large GPU to one that swaps.
TOKEN_BUCKETS_S: Final = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 10)
_BUCKETS_NS: Final = tuple(int(bound * NS_PER_S) for bound in BUCKETS_S)
_TOKEN_BUCKETS_NS: Final = tuple(int(bound * NS_PER_S) for bound in TOKEN_BUCKETS_S)
_MILLI_GPU_NS_PER_GPU_S: Final = 1000 * NS_PER_S
_REFUSED: Final = Outcome.REFUSED  # bound once: an attribute of an Enum is slow
_NEVER: Final = 1 << 62


class _Histogram:
    """Counts by bucket, the last one for what is longer than all bounds. Values in nanoseconds."""

    __slots__ = ("_bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: tuple[int, ...] = _BUCKETS_NS) -> None:
        self._bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.sum_ns = 0

    def observe(self, value_ns: int) -> None:
        self.counts[bisect_left(self._bounds_ns, value_ns)] += 1
        self.sum_ns += value_ns


class _Series:
    """What is counted of one (tenant, model, tier)."""

    __slots__ = (
        "cached",
        "cost",
        "first_token",
        "milli_gpu_ns",
        "outcomes",
        "output",
        "per_token",
        "promises",
        "prompt",
        "retries",
        "total",
        "wait",
    )  # fmt: skip

    def __init__(self, promises: "_Promises") -> None:
        self.promises = promises
        self.outcomes: dict[Outcome, int] = {outcome: 0 for outcome in Outcome if outcome is not Outcome.RUNNING}
        self.retries = 0
        self.prompt = 0
        self.cached = 0
        self.output = 0
        self.milli_gpu_ns = 0
        self.cost = 0  # in 1 / COST_UNIT micro-units
        self.wait = _Histogram()
        self.first_token = _Histogram()
        self.per_token = _Histogram(_TOKEN_BUCKETS_NS)
        self.total = _Histogram()


class _Promises:
    """What one (tenant, tier) was promised, and what of that was late."""

    __slots__ = ("first_token_late", "first_token_ns", "first_token_promised", "wait_late", "wait_ns", "wait_promised")

    def __init__(self) -> None:
        self.wait_ns = self.first_token_ns = 0  # the targets; 0: none
        self.wait_promised = self.wait_late = 0
        self.first_token_promised = self.first_token_late = 0

    def ran(self, wait_ns: int, first_token_ns: int, total_ns: int) -> None:
        """It was dispatched."""
        if self.wait_ns:
            self.wait_promised += 1
            self.wait_late += wait_ns > self.wait_ns
        if self.first_token_ns:
            late = (first_token_ns or total_ns) > self.first_token_ns
            self.first_token_promised += late or first_token_ns > 0
            self.first_token_late += late

    def unserved(self, record: UsageRecord) -> None:
        """It never was: its client left, or it was refused."""
        wait_ns, no_room = record.wait_ns, record.reason in NO_ROOM
        if self.wait_ns and (no_room or wait_ns > self.wait_ns):
            self.wait_promised += 1
            self.wait_late += 1
        if self.first_token_ns and (no_room or wait_ns > self.first_token_ns):
            self.first_token_promised += 1
            self.first_token_late += 1


class Meter:
    """Counts what ends. `record`, `refused`, `slowed` and `configure` are called on the event loop; `families` copies
    first, so that another thread may read what it gives.
    """

    def __init__(self, tiers: Mapping[str, Tier] | None = None) -> None:
        self._tiers = {} if tiers is None else tiers
        self._series: dict[Labels, _Series] = {}
        self._promises: dict[Labels, _Promises] = {}
        self._refusals: dict[Labels, int] = {}
        self._slowed: dict[Labels, int] = {}
        self._loans: dict[Labels, int] = {}
        self._known: dict[str, set[str]] = {}

    def configure(self, tiers: Mapping[str, Tier]) -> None:
        """What ends from now on was promised this."""
        self._tiers = tiers
        for (_, tier), promises in self._promises.items():
            self._promise(promises, tier)

    def record(self, record: UsageRecord) -> None:
        """An attempt ended, or a request was refused or left the queue."""
        series = self._series.get((record.tenant, record.model, record.tier))
        if series is None:
            series = self._open(record)
        outcome = record.outcome
        series.outcomes[outcome] += 1
        if not record.replica and record.reason != RECALLED:
            if outcome is _REFUSED:
                self.refused(record.tenant, record.reason)
            if record.model and record.endpoint != LATER:
                series.promises.unserved(record)
            elif not record.model:
                self._used(series, record)  # a job
            return
        series.retries += record.attempt > 1
        series.prompt += record.tokens_in
        series.cached += record.tokens_cached
        series.output += record.tokens_out
        if record.endpoint != LATER:  # which may wait for hours, and nobody for it
            self._time(series, record)
        self._used(series, record)

    def _time(self, series: _Series, record: UsageRecord) -> None:
        wait_ns, first_token_ns, total_ns = record.wait_ns, record.first_token_ns, record.total_ns
        series.wait.observe(wait_ns)
        series.total.observe(total_ns)
        if record.replica:
            series.promises.ran(wait_ns, first_token_ns, total_ns)
        else:
            series.promises.unserved(record)
        if first_token_ns:
            series.first_token.observe(first_token_ns)
            if record.stream and record.tokens_out > 1:
                series.per_token.observe((total_ns - first_token_ns) // (record.tokens_out - 1))

    def refused(self, tenant: str, reason: str, count: int = 1) -> None:
        """Requests were refused of which there is no record: the gateway counts those here. tenant "" is unknown."""
        labels = (self._bounded("tenant", tenant), self._bounded("reason", reason))
        self._refusals[labels] = self._refusals.get(labels, 0) + count

    def slowed(self, tenant: str, why: str, count: int = 1) -> None:
        """Errors were held back, since the same was asked again too early."""
        labels = (self._bounded("tenant", tenant), self._bounded("why", why))
        self._slowed[labels] = self._slowed.get(labels, 0) + count

    def families(self) -> Iterator[Family]:
        """What was counted. Copies first, since the event loop goes on counting."""
        series = dict(self._series)
        yield from _of_requests(series)
        wait, first, token, total = _HISTOGRAMS
        yield _histogram(*wait, BUCKETS_S, series, lambda one: one.wait)
        yield _histogram(*first, BUCKETS_S, series, lambda one: one.first_token)
        yield _histogram(*token, TOKEN_BUCKETS_S, series, lambda one: one.per_token)
        yield _histogram(*total, BUCKETS_S, series, lambda one: one.total)
        yield from _of_promises(dict(self._promises))
        refusals, slowed = dict(self._refusals), dict(self._slowed)
        yield _counter(
            "refusals",
            "Requests refused, each once, by why; no tenant: before it was anybody's.",
            ("tenant", "reason"),
            refusals.items(),
        )
        text = "Errors held back, since the same was asked again too early."
        yield _counter("slowed", text, ("tenant", "why"), slowed.items())
        yield from _of_loans(dict(self._loans))

    def render(self, others: Iterable[Family] = ()) -> bytes:
        """What was counted and `others`, in Prometheus' text format (`exposition.CONTENT_TYPE`)."""
        return render([*self.families(), *others])

    def _used(self, series: _Series, record: UsageRecord) -> None:
        milli_gpu_ns, price = record.milli_gpu_ns, record.micro_per_gpu_hour
        series.milli_gpu_ns += milli_gpu_ns
        if price > 0:
            series.cost += milli_gpu_ns * price
        if record.loans:
            self._lent(record.loans)

    def _lent(self, loans: tuple[Loan, ...]) -> None:
        for loan in loans:
            parties = (self._bounded("tenant", loan.lender), self._bounded("tenant", loan.borrower))
            self._loans[parties] = self._loans.get(parties, 0) + loan.milli_gpu * (loan.end_ns - loan.start_ns)

    def _open(self, record: UsageRecord) -> _Series:
        labels = (
            self._bounded("tenant", record.tenant),
            self._bounded("model", record.model),
            self._bounded("tier", record.tier),
        )
        if labels not in self._series and len(self._series) >= SERIES_MAX:
            labels = (OTHER, OTHER, OTHER)
        series = self._series.get(labels)
        if series is None:
            tenant, _, tier = labels
            series = self._series[labels] = _Series(self._promised(tenant, tier))
        return series

    def _promised(self, tenant: str, tier: str) -> _Promises:
        promises = self._promises.get((tenant, tier))
        if promises is None:
            promises = self._promises[tenant, tier] = _Promises()
            self._promise(promises, tier)
        return promises

    def _promise(self, promises: _Promises, name: str) -> None:
        tier = self._tiers.get(name)
        promises.wait_ns = (tier.queue_target_ns if tier else None) or 0
        promises.first_token_ns = (tier.first_token_target_ns if tier else None) or 0

    def _bounded(self, label: str, value: str) -> str:
        known = self._known.get(label)
        if known is None:
            known = self._known[label] = set()
        if value in known:
            return value
        if len(known) >= LABEL_VALUES_MAX:
            return OTHER
        known.add(value)
        return value


_HISTOGRAMS: Final = (
    ("wait_seconds", "From arrival to dispatch."),
    ("first_token_seconds", "From arrival to the answer's first byte."),
    ("output_token_seconds", "From one token of a stream to the next, on average over an answer."),
    ("request_seconds", "From arrival to the end of what was dispatched."),
)


def _of_requests(series: dict[Labels, _Series]) -> Iterator[Family]:
    """Counters of (tenant, model), and of (tenant, model, tier, outcome)."""
    outcomes = [
        ((*labels, outcome.value), count) for labels, one in series.items() for outcome, count in one.outcomes.items()
    ]
    text = "Attempts at requests and jobs (model empty) that ended, by how."
    yield _counter("requests", text, ("tenant", "model", "tier", "outcome"), outcomes)
    groups: dict[Labels, list[_Series]] = {}
    for (tenant, model, _), one in series.items():
        groups.setdefault((tenant, model), []).append(one)

    def summed(pick: Callable[[_Series], int]) -> list[tuple[Labels, int]]:
        return [(labels, sum(map(pick, group))) for labels, group in groups.items()]

    of_model = ("tenant", "model")
    yield _counter("retries", "Attempts beyond a first.", of_model, summed(lambda one: one.retries))
    kinds: tuple[tuple[str, Callable[[_Series], int]], ...] = (
        ("input", lambda one: one.prompt - one.cached),
        ("input_cached", lambda one: one.cached),
        ("output", lambda one: one.output),
    )
    tokens = [((*labels, kind), count) for kind, pick in kinds for labels, count in summed(pick)]
    yield _counter("tokens", "Tokens by kind; the kinds do not overlap.", (*of_model, "kind"), tokens)
    use = [(labels, ns / _MILLI_GPU_NS_PER_GPU_S) for labels, ns in summed(lambda one: one.milli_gpu_ns)]
    yield _counter("gpu_seconds", "GPU time used, by jobs too (model empty).", of_model, use)
    cost = [(labels, exact / COST_UNIT) for labels, exact in summed(lambda one: one.cost)]
    yield _counter("cost_micro", "Charged for GPU time, in millionths of the currency.", of_model, cost)


def _of_promises(promises: dict[Labels, _Promises]) -> Iterator[Family]:
    tables: tuple[tuple[str, str, Callable[[_Promises], int]], ...] = (
        (
            "wait_promised",
            "Attempts that show whether a queue_target was kept.",
            lambda one: one.wait_promised,
        ),
        ("wait_late", "Those of them for which it was not.", lambda one: one.wait_late),
        (
            "first_token_promised",
            "Attempts that show whether a first_token_target was kept.",
            lambda one: one.first_token_promised,
        ),
        ("first_token_late", "Those of them for which it was not.", lambda one: one.first_token_late),
    )
    for name, text, pick in tables:
        yield _counter(name, text, ("tenant", "tier"), [(labels, pick(one)) for labels, one in promises.items()])


def _of_loans(loans: dict[Labels, int]) -> Iterator[Family]:
    """Loans by (lender, borrower), as each party sees them; the pool's unowned part lends without being a tenant."""
    for place, party in enumerate(("lent", "borrowed")):
        sums: dict[Labels, int] = {}
        for parties, milli_gpu_ns in loans.items():
            if tenant := parties[place]:
                sums[tenant,] = sums.get((tenant,), 0) + milli_gpu_ns
        use = [(labels, ns / _MILLI_GPU_NS_PER_GPU_S) for labels, ns in sums.items()]
        yield _counter(f"{party}_gpu_seconds", f"GPU time {party}, of loans that ended.", ("tenant",), use)


def _counter(name: str, text: str, labels: Labels, samples: Iterable[tuple[Labels, float]]) -> Family:
    return Family(name, "counter", text, labels, tuple(samples))


def _histogram(
    name: str,
    text: str,
    bounds: tuple[float, ...],
    series: dict[Labels, _Series],
    pick: Callable[[_Series], _Histogram],
) -> Family:
    samples = [(labels, Counts(tuple(pick(one).counts), pick(one).sum_ns / NS_PER_S)) for labels, one in series.items()]
    return Family(name, "histogram", text, ("tenant", "model", "tier"), samples, bounds)
