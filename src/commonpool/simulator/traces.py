"""Readers of traces: public ones, and what this product has recorded itself. The format is seen from the first line.

| format | a record is | source |
|---|---|---|
| Azure LLM inference | a request: time, tokens in, tokens out | Azure/AzurePublicDataset |
| Mooncake | a request: time in ms, tokens in, tokens out | kvcache-ai/Mooncake |
| tenants' requests | a request of a tenant: time, tenant, tokens in, tokens out | drawn from alibaba/ServeGen |
| tenants' demand | a tenant's requests/s and mean lengths in a window | drawn from alibaba/ServeGen |
| Philly | a training job of a virtual cluster | pkusys/ElasticFlow's table of msr-fiddle/philly-traces |
| openb | a pod with whole or part GPUs | alibaba/clusterdata v2023 |
| usage records | an attempt, CSV or JSON lines with the names of `UsageRecord` | this product |

A trace names neither a model nor a pool of ours: `Target` says what its records ask for. Times become nanoseconds since
the epoch: the hour of the week matters to a forecast. Where a trace has dates they stay (its local time, read as UTC);
the others begin on a Monday.
"""

import csv
import gzip
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from commonpool.core.model import NS_PER_S, Job, Outcome, Request, Resource
from commonpool.simulator.workload import Arrival, Workload, workload

# Where traces without dates begin: Monday, 2024-01-01, UTC.
MONDAY_NS: Final = 1_704_067_200 * NS_PER_S
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_GZIP: Final = b"\x1f\x8b"
# The length of the only window of a demand trace that has but one, as of those it was made for.
_WINDOW_NS: Final = 600 * NS_PER_S


class TraceError(Exception):
    """A trace cannot be read: which file and line, what is wrong, and what would be right."""


class Target(msgspec.Struct, frozen=True):
    """What the records of a trace ask for.

    `tiers` names the tier of tenants that do not use `tier`. `weights` are the tenants among whom a trace without
    tenants is split, and in what proportion.
    """

    model: str
    pool: str
    tier: str
    app: str = "default"
    tiers: dict[str, str] = {}
    weights: dict[str, int] = {}


def read(
    path: Path, target: Target, *, speed: Fraction = Fraction(1), seed: int = 0, limit: int | None = None
) -> Workload:
    """The workload of a file, plain or gzip. Raises TraceError.

    `speed` divides the gaps between arrivals; how long each task takes stays. `seed` is for splitting among tenants and
    for drawing arrivals from rates. `limit` keeps that many arrivals, the earliest.
    """
    if speed <= 0:
        raise TraceError(f"speed {speed} is not above zero; 2 makes a trace arrive twice as fast")
    source = _Source(path, target, seed)
    lines = None
    try:
        with gzip.open(path, "rb") if _zipped(path) else path.open("rb") as file:
            lines = _Lines(file)
            form = _form(path, lines)
            arrivals = list(islice(form.reader(source, lines), limit if form.ordered else None))
    except OSError as error:  # gzip's own error is one
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: the compressed file is damaged after line {lines.number if lines else 0}") from error
    except (ValueError, OverflowError, csv.Error, msgspec.DecodeError) as error:
        raise TraceError(f"{path}, line {lines.number if lines else 0}: not a record of its format: {error}") from error
    arrivals.sort(key=lambda arrival: arrival.at_ns)
    return workload(path.name, _paced(arrivals[:limit], speed), dict(source.dropped))


def _paced(arrivals: list[Arrival], speed: Fraction) -> list[Arrival]:
    if speed == 1 or not arrivals:
        return arrivals
    first = arrivals[0].at_ns
    return [
        Arrival(
            first + (a.at_ns - first) * speed.denominator // speed.numerator,
            a.task,
            a.tokens_in,
            a.tokens_out,
            a.duration_ns,
        )
        for a in arrivals
    ]


def _zipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP


class _Lines:
    """The lines of a file as text, without their ends: the first, then the others. `number` is that of the last."""

    def __init__(self, file: Iterator[bytes]) -> None:
        self._file = file
        self.number = 0
        self.first = next(self, "")

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.number += 1
        return line.decode("utf-8-sig").rstrip("\r\n")

    def columns(self, count: int) -> Iterator[list[str]]:
        """The values of each line that is not empty. ValueError for one with too few."""
        for line in self:
            if line:
                values = line.split(",")
                if len(values) < count:
                    raise ValueError(f"{count} values are expected, {line!r} has {len(values)}")
                yield values


class _Source:
    """Makes arrivals of what a reader finds."""

    def __init__(self, path: Path, target: Target, seed: int) -> None:
        self.path = path
        self.seed = seed
        self.dropped: Counter[str] = Counter()
        self._target = target
        self._names = sorted(target.weights)
        self._weights = [target.weights[name] for name in self._names]
        self._chance = random.Random(f"{seed}:split")  # noqa: S311 - not for secrets
        self._number = 0

    def request(self, at_ns: int, tenant: str | None, tokens_in: int, tokens_out: int) -> Arrival:
        who, tier = self._who(tenant)
        target = self._target
        request = Request(f"r{self._number}", who, target.app, target.model, tier, "chat", tokens_in)
        return Arrival(at_ns, request, tokens_in, tokens_out)

    def job(
        self, at_ns: int, tenant: str | None, milli_gpu: int, duration_ns: int, cpu_milli: int = 0, memory_mib: int = 0
    ) -> Arrival:
        who, tier = self._who(tenant)
        target = self._target
        resources: dict[Resource, int] = {}
        if cpu_milli:
            resources["cpu_milli"] = cpu_milli
        if memory_mib:
            resources["memory_mib"] = memory_mib
        job = Job(f"j{self._number}", who, target.app, target.pool, tier, milli_gpu, resources)
        return Arrival(at_ns, job, duration_ns=duration_ns)

    def _who(self, tenant: str | None) -> tuple[str, str]:
        self._number += 1
        if tenant is None:
            if not self._names:
                raise TraceError(f"{self.path}: the trace names no tenants; say among whom its records are split")
            tenant = self._chance.choices(self._names, self._weights)[0]
        return tenant, self._target.tiers.get(tenant, self._target.tier)


# -- one reader for each format ----------------------------------------------------------------------------------------


def _azure(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    for time, tokens_in, tokens_out, *_ in lines.columns(3):
        yield source.request(_instant(time), None, _count(tokens_in), _count(tokens_out))


class _Mooncake(msgspec.Struct):
    timestamp: int  # ms
    input_length: int
    output_length: int


def _mooncake(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    decoder = msgspec.json.Decoder(_Mooncake)
    for line in chain([lines.first], lines):
        if line:
            record = decoder.decode(line)
            at_ns = MONDAY_NS + record.timestamp * 1_000_000
            yield source.request(at_ns, None, record.input_length, record.output_length)


def _tenants(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    for second, tenant, tokens_in, tokens_out, *_ in lines.columns(4):
        yield source.request(MONDAY_NS + _ns(second), tenant, _count(tokens_in), _count(tokens_out))


def _demand(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    """Arrivals drawn from rates: Poisson in each window, lengths exponential around the window's means."""
    chances: dict[str, random.Random] = {}
    windows = ((_ns(start), list(rows)) for start, rows in groupby(lines.columns(5), key=lambda row: row[0]))
    start, rows = next(windows, (0, []))
    length = _WINDOW_NS
    for following, next_rows in chain(windows, [(-1, [])]):
        length = following - start if following > start else length
        drawn: list[tuple[int, str, int, int]] = []
        for _, tenant, per_second, mean_in, mean_out, *_ in rows:
            chance = chances.setdefault(tenant, random.Random(f"{source.seed}:{tenant}"))  # noqa: S311
            means = float(per_second), float(mean_in), float(mean_out)
            drawn += ((start + at, tenant, i, o) for at, i, o in _poisson(chance, length, *means))
        for at, tenant, tokens_in, tokens_out in sorted(drawn):
            yield source.request(MONDAY_NS + at, tenant, tokens_in, tokens_out)
        start, rows = following, next_rows


def _poisson(
    chance: random.Random, length_ns: int, per_second: float, mean_in: float, mean_out: float
) -> Iterator[tuple[int, int, int]]:
    at = 0
    while per_second > 0:
        at += int(chance.expovariate(per_second) * NS_PER_S) + 1
        if at >= length_ns:
            return
        yield at, max(1, round(chance.expovariate(1) * mean_in)), max(1, round(chance.expovariate(1) * mean_out))


def _philly(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    for time, duration, gpus, _, cluster, *_ in lines.columns(5):
        if _usable(source, 1000 * _count(gpus), _ns(duration)):
            yield source.job(_instant(time), cluster, 1000 * _count(gpus), _ns(duration))


def _openb(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    for row in lines.columns(11):
        cpu_milli, memory_mib, gpus, gpu_milli = map(_count, row[1:5])
        created, deleted = _ns(row[8]), _ns(row[9])
        if _usable(source, gpus * gpu_milli, deleted - created):
            at_ns = MONDAY_NS + created
            yield source.job(at_ns, None, gpus * gpu_milli, deleted - created, cpu_milli, memory_mib)


def _usage_csv(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    rows = csv.DictReader(lines, lines.first.split(","))
    return _usage(source, (msgspec.convert(row, _Attempt, strict=False) for row in rows))


def _usage_json(source: _Source, lines: _Lines) -> Iterator[Arrival]:
    decoder = msgspec.json.Decoder(_Attempt)
    return _usage(source, (decoder.decode(line) for line in chain([lines.first], lines) if line))


class _Attempt(msgspec.Struct):
    """What a simulation needs of a usage record."""

    request_id: str
    attempt: int
    tenant: str
    endpoint: str
    outcome: Outcome
    arrived_ns: int
    run_ns: int
    tokens_in: int
    tokens_out: int
    milli_gpu: int


def _usage(source: _Source, attempts: Iterator[_Attempt]) -> Iterator[Arrival]:
    """Each request or job once, as its last attempt found it."""
    last: dict[str, _Attempt] = {}
    for attempt in attempts:
        known = last.get(attempt.request_id)
        if known is None or attempt.attempt > known.attempt:
            last[attempt.request_id] = attempt
    for record in last.values():
        if record.outcome in {Outcome.REFUSED, Outcome.FAILED}:
            source.dropped[f"{record.outcome}: how long it would have been is unknown"] += 1
        elif record.endpoint in {"job", "replica"}:
            if _usable(source, record.milli_gpu, record.run_ns):
                yield source.job(record.arrived_ns, record.tenant, record.milli_gpu, record.run_ns)
        else:
            yield source.request(record.arrived_ns, record.tenant, record.tokens_in, record.tokens_out)


# -- what a line is ----------------------------------------------------------------------------------------------------


class _Form(NamedTuple):
    """A format: its reader, and whether its records are in order of time."""

    reader: Callable[[_Source, _Lines], Iterator[Arrival]]
    ordered: bool


_BY_HEADER: Final = {
    "TIMESTAMP,ContextTokens,GeneratedTokens": _Form(_azure, ordered=True),
    "arrival_s,tenant,input_tokens,output_tokens": _Form(_tenants, ordered=True),
    "window_start_s,tenant,requests_per_s,mean_input_tokens,mean_output_tokens": _Form(_demand, ordered=True),
    "timestamp,duration,num_gpus,gpu_time,cluster": _Form(_philly, ordered=False),
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time": _Form(
        _openb, ordered=False
    ),
}


def _form(path: Path, lines: _Lines) -> _Form:
    first = lines.first
    for header, form in _BY_HEADER.items():
        if first.startswith(header):
            return form
    if set(first.split(",")).issuperset(_Attempt.__struct_fields__):
        return _Form(_usage_csv, ordered=False)
    names = _names(first)
    if names.issuperset(_Mooncake.__struct_fields__):
        return _Form(_mooncake, ordered=True)
    if names.issuperset(_Attempt.__struct_fields__):
        return _Form(_usage_json, ordered=False)
    known = " or ".join(f"{header.partition(',')[0]},…" for header in _BY_HEADER)
    raise TraceError(
        f"{path}, line 1: {first[:60]!r} begins no known format; CSV begins with the header {known} or with the names "
        "of usage records, JSON lines with a Mooncake record or a usage record"
    )


def _names(line: str) -> set[str]:
    try:
        return set(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
    except msgspec.DecodeError:
        return set()


# -- single values -----------------------------------------------------------------------------------------------------


def _usable(source: _Source, milli_gpu: int, duration_ns: int) -> bool:
    if milli_gpu <= 0:
        source.dropped["asks for no GPU"] += 1
    elif duration_ns <= 0:
        source.dropped["takes no time"] += 1
    return milli_gpu > 0 and duration_ns > 0


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(f"{text} is below zero")
    return number


def _ns(seconds: str) -> int:
    """Nanoseconds of decimal seconds, exactly; what is finer than that is cut."""
    whole, _, part = seconds.partition(".")
    return _count(whole) * NS_PER_S + (_count(part[:9].ljust(9, "0")) if part else 0)


def _instant(text: str) -> int:
    """Nanoseconds since the epoch of `2023-11-16 18:15:46.6805900`."""
    seconds, _, part = text.removesuffix("+00:00").partition(".")
    moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return (moment - _EPOCH) // _SECOND * NS_PER_S + (_count(part[:9].ljust(9, "0")) if part else 0)
