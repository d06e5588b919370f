"""What is measured of the whole product: what the meter counts, and what its sources hold at the moment of a scrape."""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from commonpool import __version__
from commonpool.api.wire.status import EngineStatus, ReplicaStatus
from commonpool.control.books import Books
from commonpool.control.nodes import Listening
from commonpool.control.seat import State, Status
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Tier
from commonpool.observe.decisions import Decisions
from commonpool.observe.exposition import Family
from commonpool.observe.gauges import gauge
from commonpool.observe.metrics import Meter
from commonpool.store.journal import Journal
from commonpool.store.writer import Writer

STATES: Final = ("starting", "ready", "unknown", "failing", "draining", "stopping")
_MILLI_GPU_NS_PER_GPU_S: Final = 1000 * NS_PER_S
_PERMILLE: Final = 1000

Source = Callable[[], Iterable[Family]]


class Telemetry:
    """`meter` counts; a source is asked on the event loop at each scrape, and so gives plain numbers."""

    def __init__(self, tiers: Mapping[str, Tier]) -> None:
        self.meter = Meter(tiers)
        self._sources: list[Source] = []
        self._scraping = asyncio.Lock()  # one at a time: each takes a thread, and memory

    def add(self, source: Source) -> None:
        """What it gives is served from now on."""
        self._sources.append(source)

    async def scrape(self) -> bytes:
        """All of it in Prometheus' text format (`observe.exposition.CONTENT_TYPE`)."""
        async with self._scraping:
            found = [family for source in self._sources for family in source()]
            return await asyncio.to_thread(self.meter.render, found)


def build(currency: str) -> Iterator[Family]:
    """What runs."""
    version = (__version__, platform.python_version())
    yield Family("build_info", "gauge", "The version that runs.", ("version", "python"), [(version, 1)])
    yield Family("currency_info", "gauge", "The currency of all costs.", ("currency",), [((currency,), 1)])


def replicas(
    found: Sequence[ReplicaStatus], seats: Sequence[Status], models: Iterable[str], now: int
) -> Iterator[Family]:
    """Each replica, and how many each of these models has in each state."""
    tables: tuple[tuple[str, str, Callable[[ReplicaStatus], int]], ...] = (
        ("ready", "1 where it takes requests.", lambda one: one.state == "ready"),
        ("running_requests", "Slots in use.", lambda one: one.running),
        ("slots", "Sequences it runs at once.", lambda one: one.slots),
    )
    labels = ("replica", "model")
    for name, text, pick in tables:
        samples = [((one.id, one.model), int(pick(one))) for one in found]
        yield Family(f"replica_{name}", "gauge", text, labels, samples)
    yield from _engines(found)
    up = [seat for seat in seats if seat.state is not State.STARTING]
    heard = [((each.replica.id, each.replica.model), max(0, now - each.heard_ns) / NS_PER_S) for each in up]
    yield Family("replica_unheard_seconds", "gauge", "Since its engine last said that it is well.", labels, heard)
    counts = {(model, state): 0 for model in models for state in STATES}
    for one in found:
        counts[one.model, one.state] = counts.get((one.model, one.state), 0) + 1
    yield Family("replicas", "gauge", "Replicas by what they do.", ("model", "state"), list(counts.items()))


def _engines(found: Sequence[ReplicaStatus]) -> Iterator[Family]:
    """What engines say of themselves; nothing of what is not known."""
    tables: tuple[tuple[str, str, Callable[[EngineStatus], float | None]], ...] = (
        ("running_requests", "Sequences that run, as the engine says.", lambda said: said.running),
        ("waiting_requests", "Sequences that wait in the engine.", lambda said: said.waiting),
        (
            "kv_ratio",
            "How much of its KV cache an engine uses.",
            lambda said: None if said.kv_milli is None else said.kv_milli / _PERMILLE,
        ),
        (
            "foreign_requests",
            "Sequences in the engine that were not sent from here.",
            lambda said: None if said.running is None else said.foreign,
        ),
        ("known", "0 where an engine says no more what it runs.", lambda said: int(said.running is not None)),
    )
    for name, text, pick in tables:
        values = [((one.id, one.model), pick(one.engine)) for one in found if one.engine is not None]
        samples = [(labels, value) for labels, value in values if value is not None]
        yield Family(f"engine_{name}", "gauge", text, ("replica", "model"), samples)


def gateways(found: Iterable[Listening]) -> Iterator[Family]:
    """Those of other processes than this one."""
    up = {(each.node,): int(not each.problem) for each in found}
    text = "1 where the gateway of a node listens, on a Ray cluster."
    yield Family("gateway_listening", "gauge", text, ("node",), list(up.items()))


def keeping(journal: Journal, writer: Writer) -> Iterator[Family]:
    """The way of usage records into the store."""
    tables: tuple[tuple[str, str, float], ...] = (
        ("journal_backlog_bytes", "Usage not yet stored.", writer.backlog_bytes),
        ("journal_healthy", "0 where usage cannot be recorded: nothing is taken in.", int(journal.healthy)),
        ("journal_overdue", "1 where it was kept for too long: nothing is taken in.", int(bool(journal.overdue))),
        ("usage_writer_alarm", "1 where the store cannot be written.", int(writer.alarm is not None)),
    )
    for name, text, value in tables:
        yield Family(name, "gauge", text, (), [((), value)])


def later(kept: Mapping[str, tuple[int, int]], tenants: Iterable[str]) -> Iterator[Family]:
    """What is kept for later (`control.later.Later.kept`), of these tenants and of those that left something."""
    found = {**dict.fromkeys(tenants, (0, 0)), **kept}
    counts = [((tenant,), count) for tenant, (count, _) in found.items()]
    yield Family("tenant_later_requests", "gauge", "Kept to be answered later, and answers kept.", ("tenant",), counts)
    sizes = [((tenant,), size) for tenant, (_, size) in found.items()]
    yield Family("tenant_later_bytes", "gauge", "How much these are, as they are kept.", ("tenant",), sizes)


def books(kept: Books, now: int) -> Iterator[Family]:
    """The last closed hour of each pool."""
    last, pool = kept.last, ("pool",)
    behind = "Since the end of the last closed hour."
    yield gauge("books_behind_seconds", behind, pool, last, lambda one: (now - one.hour_ns - NS_PER_HOUR) / NS_PER_S)
    uncharged = "Of that hour, there and charged to nobody."
    yield gauge("books_uncharged_gpu_seconds", uncharged, pool, last, lambda one: _gpu_s(one.devices - one.charged))
    unreported = "Of that hour, given out and not seen to run."
    yield gauge("books_unreported_gpu_seconds", unreported, pool, last, lambda one: _gpu_s(one.held - one.reported))


def decided(decisions: Decisions) -> Iterator[Family]:
    """What the core decided."""
    made = [((kind,), count) for kind, count in decisions.made.items()]
    yield Family("decisions", "counter", "Decisions, by what they were about.", ("kind",), made)


def _gpu_s(milli_gpu_ns: int) -> float:
    return milli_gpu_ns / _MILLI_GPU_NS_PER_GPU_S
