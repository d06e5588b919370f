"""Metrics for Prometheus: cheap to count on the event loop, put into families only when somebody scrapes.

Names have the prefix `commonpool_`, base units and `_total`. Label values that are not from the configuration are
bounded: the first LABEL_VALUES_MAX of a label keep their names, the rest are `other`.
"""

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from commonpool import __version__
from commonpool.core.model import LATER, NS_PER_S, RECALLED, Outcome, UsageRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABEL_VALUES_MAX = 1000
SERIES_MAX = 10_000  # combinations of tenant, model and tier; what comes later is all `other`
OTHER = "other"

# From a slot that is free to a queue of an hour: LLM queues are long.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600)
_BUCKETS_NS = tuple(int(bound * NS_PER_S) for bound in BUCKETS_S)
_MILLI_GPU_NS_PER_GPU_S = 1000 * NS_PER_S

Labels = tuple[str, ...]
V = TypeVar("V")


class TenantGauges(msgspec.Struct, frozen=True):
    """A tenant now: GPU in thousandths, `waiting` in requests, `waiting_jobs` in jobs.

    `by_jobs` is what jobs hold, `releasable` what could be released of a guarantee that is under-used, 0 if it is not.
    """

    tenant: str
    guaranteed: int
    in_use: int
    lent: int
    borrowed: int
    waiting: int
    waiting_jobs: int = 0
    by_jobs: int = 0
    releasable: int = 0


class PoolGauges(msgspec.Struct, frozen=True):
    """The devices of a pool now, in thousandths of a GPU; `fragmented` is free and of no use."""

    pool: str
    capacity: int
    free: int
    fragmented: int


class ModelGauges(msgspec.Struct, frozen=True):
    """The replicas of a model now; `failures` is how many starts failed since one was last ready."""

    model: str
    wanted: int
    ready: int
    starting: int
    failures: int


class ReplicaGauges(msgspec.Struct, frozen=True):
    """A replica now: whether it takes requests, its slots and how many of them run something."""

    replica: str
    model: str
    ready: bool
    running: int
    slots: int


class JournalGauges(msgspec.Struct, frozen=True):
    """The way of usage records into the store: bytes not yet there, and whether each end of it works."""

    backlog_bytes: int
    healthy: bool
    writer_alarm: bool


class BooksGauges(msgspec.Struct, frozen=True):
    """The books of a pool: how long ago its last closed hour ended, and what was wrong with that, in milli_gpu_ns.

    `uncharged` is what was there and nobody was charged for, `unreported` what was given out beyond what backends saw.
    """

    pool: str
    behind_ns: int
    uncharged: int
    unreported: int


class Gauges(msgspec.Struct, frozen=True):
    """All that is measured at the moment of a scrape."""

    tenants: tuple[TenantGauges, ...]
    replicas: tuple[ReplicaGauges, ...]
    journal: JournalGauges
    pools: tuple[PoolGauges, ...] = ()
    models: tuple[ModelGauges, ...] = ()
    books: tuple[BooksGauges, ...] = ()


class _Histogram:
    """Counts by bucket, the last one for what is longer than all bounds. Values in nanoseconds."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_NS) + 1)
        self.sum_ns = 0

    def observe(self, value_ns: int) -> None:
        self.counts[bisect_left(_BUCKETS_NS, value_ns)] += 1
        self.sum_ns += value_ns


class _Series:
    """What is counted of one (tenant, model, tier)."""

    __slots__ = ("cached", "first_token", "milli_gpu_ns", "outcomes", "output", "prompt", "retries", "total", "wait")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = {outcome: 0 for outcome in Outcome if outcome is not Outcome.RUNNING}
        self.retries = 0
        self.prompt = 0
        self.cached = 0
        self.output = 0
        self.milli_gpu_ns = 0
        self.wait = _Histogram()
        self.first_token = _Histogram()
        self.total = _Histogram()


class Meter:
    """Counts what ends and reads what is. `record` and `refused` are called on the event loop, `render` on any thread.

    `gauges` is called once a scrape, on the scraping thread, and so returns values that are safe to read there.
    """

    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self._series: dict[Labels, _Series] = {}
        self._refusals: dict[Labels, int] = {}
        self._slowed: dict[Labels, int] = {}
        self._loans: dict[Labels, int] = {}
        self._known: dict[str, set[str]] = {}
        self.registry = CollectorRegistry()
        self.registry.register(_MeterCollector(self, gauges))

    def record(self, record: UsageRecord) -> None:
        """An attempt ended, or a request was refused or left the queue."""
        series = self._series.get((record.tenant, record.model, record.tier))
        if series is None:
            series = self._open(record)
        series.outcomes[record.outcome] += 1
        if not record.replica and record.reason != RECALLED:
            if record.outcome is Outcome.REFUSED:
                self.refused(record.tenant, record.reason)
            return
        series.retries += record.attempt > 1
        series.prompt += record.tokens_in
        series.cached += record.tokens_cached
        series.output += record.tokens_out
        series.milli_gpu_ns += record.milli_gpu_ns
        if record.endpoint != LATER:  # which may wait for hours, and nobody for it
            self._time(series, record)
        for loan in record.loans:
            parties = (self._bounded("tenant", loan.lender), self._bounded("tenant", loan.borrower))
            self._loans[parties] = self._loans.get(parties, 0) + loan.milli_gpu * (loan.end_ns - loan.start_ns)

    def _time(self, series: _Series, record: UsageRecord) -> None:
        series.wait.observe(record.wait_ns)
        series.total.observe(record.total_ns)
        if record.first_token_ns:
            series.first_token.observe(record.first_token_ns)

    def refused(self, tenant: str, reason: str) -> None:
        """A request was refused; the gateway counts here those that never reached the core. tenant "" is unknown."""
        labels = (self._bounded("tenant", tenant), self._bounded("reason", reason))
        self._refusals[labels] = self._refusals.get(labels, 0) + 1

    def slowed(self, tenant: str, why: str) -> None:
        """An error was held back, since the same was asked again too early."""
        labels = (self._bounded("tenant", tenant), self._bounded("why", why))
        self._slowed[labels] = self._slowed.get(labels, 0) + 1

    def render(self) -> bytes:
        """All metrics in Prometheus's text format, CONTENT_TYPE."""
        return generate_latest(self.registry)

    def families(self) -> Iterator[Metric]:
        """What was counted, as families. Copies first, since the event loop goes on counting."""
        series = dict(self._series)
        requests = CounterMetricFamily(
            "commonpool_requests",
            "Attempts at requests that ended, by how; less the retries they are the requests.",
            labels=("tenant", "model", "tier", "outcome"),
        )
        retries = CounterMetricFamily("commonpool_retries", "Attempts beyond a first.", labels=("tenant", "model"))
        tokens = CounterMetricFamily(
            "commonpool_tokens",
            "Tokens by kind; the kinds do not overlap.",
            labels=("tenant", "model", "kind"),
        )
        use = CounterMetricFamily("commonpool_gpu_seconds", "GPU time used.", labels=("tenant", "model"))
        for labels, one in series.items():
            for outcome, count in one.outcomes.items():
                requests.add_metric((*labels, outcome.value), count)
        for names, group in _grouped(series, 0, 1).items():
            prompt, cached = sum(one.prompt for one in group), sum(one.cached for one in group)
            retries.add_metric(names, sum(one.retries for one in group))
            tokens.add_metric((*names, "input"), prompt - cached)
            tokens.add_metric((*names, "input_cached"), cached)
            tokens.add_metric((*names, "output"), sum(one.output for one in group))
            use.add_metric(names, sum(one.milli_gpu_ns for one in group) / _MILLI_GPU_NS_PER_GPU_S)
        yield from (requests, retries, tokens, use)

        by_tier = _grouped(series, 0, 2)
        yield _histogram("wait", "From arrival to dispatch.", by_tier, lambda one: one.wait)
        yield _histogram(
            "first_token", "From arrival to the answer's first byte.", by_tier, lambda one: one.first_token
        )
        yield _histogram("request", "From arrival to the end of what was dispatched.", by_tier, lambda one: one.total)

        refusals = CounterMetricFamily("commonpool_refusals", "Requests refused, by why.", labels=("tenant", "reason"))
        for labels, count in dict(self._refusals).items():
            refusals.add_metric(labels, count)
        yield refusals
        slowed = CounterMetricFamily(
            "commonpool_slowed", "Errors held back, since the same was asked again too early.", labels=("tenant", "why")
        )
        for labels, count in dict(self._slowed).items():
            slowed.add_metric(labels, count)
        yield slowed
        yield from _loan_families(dict(self._loans))

    def _open(self, record: UsageRecord) -> _Series:
        labels = (
            self._bounded("tenant", record.tenant),
            self._bounded("model", record.model),
            self._bounded("tier", record.tier),
        )
        if labels not in self._series and len(self._series) >= SERIES_MAX:
            labels = (OTHER, OTHER, OTHER)
        return self._series.setdefault(labels, _Series())

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


class _MeterCollector(Collector):
    """Joins what a meter counted with what is now."""

    def __init__(self, meter: Meter, gauges: Callable[[], Gauges]) -> None:
        self._meter = meter
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read the gauges."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families of one scrape."""
        yield from self._meter.families()
        yield from _gauge_families(self._gauges())
        info = GaugeMetricFamily("commonpool_build_info", "The version that runs.", labels=("version", "python"))
        info.add_metric((__version__, platform.python_version()), 1)
        yield info


def _grouped(series: dict[Labels, _Series], *places: int) -> dict[Labels, list[_Series]]:
    """The series by some of their labels."""
    groups: dict[Labels, list[_Series]] = {}
    for labels, one in series.items():
        groups.setdefault(tuple(labels[place] for place in places), []).append(one)
    return groups


def _histogram(
    name: str, text: str, groups: dict[Labels, list[_Series]], pick: Callable[[_Series], _Histogram]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"commonpool_{name}_seconds", text, labels=("tenant", "tier"))
    for labels, group in groups.items():
        histograms = [pick(one) for one in group]
        cumulative = accumulate(map(sum, zip(*(one.counts for one in histograms), strict=True)))
        bounds = [*(str(float(bound)) for bound in BUCKETS_S), "+Inf"]
        total_ns = sum(one.sum_ns for one in histograms)
        family.add_metric(labels, list(zip(bounds, cumulative, strict=True)), total_ns / NS_PER_S)
    return family


def _loan_families(loans: dict[Labels, int]) -> Iterator[Metric]:
    """Loans by (lender, borrower), as each party sees them; the pool's unowned part lends without being a tenant."""
    for place, party in enumerate(("lent", "borrowed")):
        family = CounterMetricFamily(f"commonpool_{party}_gpu_seconds", f"GPU time {party}.", labels=("tenant",))
        sums: dict[str, int] = {}
        for parties, milli_gpu_ns in loans.items():
            sums[parties[place]] = sums.get(parties[place], 0) + milli_gpu_ns
        for tenant, milli_gpu_ns in sums.items():
            if tenant:
                family.add_metric((tenant,), milli_gpu_ns / _MILLI_GPU_NS_PER_GPU_S)
        yield family


def _gauge_families(gauges: Gauges) -> Iterator[Metric]:
    tenant = ("tenant",)
    yield _gauge("tenant_guaranteed_gpus", "GPUs it can always have back.", tenant, gauges.tenants, _gpus("guaranteed"))
    yield _gauge("tenant_in_use_gpus", "GPUs its work uses.", tenant, gauges.tenants, _gpus("in_use"))
    yield _gauge("tenant_lent_gpus", "GPUs of its guarantee that others use.", tenant, gauges.tenants, _gpus("lent"))
    yield _gauge("tenant_borrowed_gpus", "GPUs it uses above its guarantee.", tenant, gauges.tenants, _gpus("borrowed"))
    yield _gauge("tenant_waiting_requests", "Requests in its queue.", tenant, gauges.tenants, lambda one: one.waiting)
    yield _gauge("tenant_waiting_jobs", "Jobs in its queue.", tenant, gauges.tenants, lambda one: one.waiting_jobs)
    yield _gauge("tenant_job_gpus", "GPUs that its jobs hold.", tenant, gauges.tenants, _gpus("by_jobs"))
    releasable = _gpus("releasable")
    yield _gauge("tenant_underused_gpus", "Unused for days; could be released.", tenant, gauges.tenants, releasable)
    pool = ("pool",)
    yield _gauge("pool_capacity_gpus", "GPUs that are there and healthy.", pool, gauges.pools, _gpus("capacity"))
    yield _gauge("pool_free_gpus", "GPUs that nobody holds.", pool, gauges.pools, _gpus("free"))
    yield _gauge("pool_fragmented_gpus", "Free, and of no use.", pool, gauges.pools, _gpus("fragmented"))
    model = ("model",)
    yield _gauge("model_wanted_replicas", "Replicas it should have.", model, gauges.models, lambda one: one.wanted)
    yield _gauge("model_ready_replicas", "Replicas that are ready.", model, gauges.models, lambda one: one.ready)
    yield _gauge("model_starting_replicas", "Replicas that start.", model, gauges.models, lambda one: one.starting)
    yield _gauge(
        "model_failed_starts", "Starts failed since the last good.", model, gauges.models, lambda one: one.failures
    )
    replica = ("replica", "model")
    yield _gauge("replica_ready", "1 where it takes requests.", replica, gauges.replicas, lambda one: one.ready)
    yield _gauge("replica_running_requests", "Slots in use.", replica, gauges.replicas, lambda one: one.running)
    yield _gauge("replica_slots", "Sequences it runs at once.", replica, gauges.replicas, lambda one: one.slots)
    yield from _books_families(gauges.books)
    journal = (gauges.journal,)
    yield _gauge("journal_backlog_bytes", "Usage not yet stored.", (), journal, lambda one: one.backlog_bytes)
    yield _gauge("journal_healthy", "0 where usage cannot be recorded.", (), journal, lambda one: one.healthy)
    yield _gauge(
        "usage_writer_alarm", "1 where the store cannot be written.", (), journal, lambda one: one.writer_alarm
    )


def _books_families(books: tuple[BooksGauges, ...]) -> Iterator[Metric]:
    pool = ("pool",)

    def gpu_s(field: str) -> Callable[[BooksGauges], float]:
        return lambda one: getattr(one, field) / _MILLI_GPU_NS_PER_GPU_S

    yield _gauge("books_behind_seconds", "Since the end of the last closed hour.", pool, books, _behind_s)
    yield _gauge("books_uncharged_gpu_seconds", "Of that hour, charged to nobody.", pool, books, gpu_s("uncharged"))
    yield _gauge("books_unreported_gpu_seconds", "Of that hour, not seen to run.", pool, books, gpu_s("unreported"))


def _behind_s(books: BooksGauges) -> float:
    return books.behind_ns / NS_PER_S


def _gauge(name: str, text: str, labels: Labels, values: Iterable[V], pick: Callable[[V], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"commonpool_{name}", text, labels=labels)
    for value in values:
        family.add_metric(tuple(getattr(value, label) for label in labels), pick(value))
    return family


def _gpus(field: str) -> Callable[[TenantGauges | PoolGauges], float]:
    return lambda gauges: getattr(gauges, field) / 1000
