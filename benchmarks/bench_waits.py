"""Waits: how fast records are counted, how large a month is, and how long its percentiles take.

    python -m benchmarks.bench_waits [--quick] [--folder FOLDER]

Writes docs/results/waits.md. --quick takes little of everything and writes no page.
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
from benchmarks import ledger_data, machine
from benchmarks.bench_ledger import fill
from tests.store.places import Place, PostgresPlace, SqlitePlace
from tests.store.server import PostgresServer

from commonpool.config import parse
from commonpool.control.waits import COUNTED_AT_ONCE, WaitBooks
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Policy, Tier
from commonpool.core.waits import DAY_NS, WINDOW_NS, End, Tally, fold
from commonpool.store.journal import Journal
from commonpool.store.sqlite import FILE, SqliteStore
from commonpool.store.writer import Writer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "waits.md"
CORE = 0
ROUNDS = 3
TIERS = {
    "interactive": Tier("interactive", 2 * NS_PER_S, 3 * NS_PER_S),
    "standard": Tier("standard", 10 * NS_PER_S, 20 * NS_PER_S),
    "batch": Tier("batch", 120 * NS_PER_S),
}
STEP_NS = 5_000_000  # 200 requests a second
START_NS = ledger_data.START_NS
COLUMNS = (
    "span_ns, start_ns, tenant, model, tier, completed, failed, cancelled, abandoned, queue_promised, queue_late,"
    " first_token_promised, first_token_late, refused, wait, first_token, unserved"
)


class Scale(msgspec.Struct, frozen=True):
    """How much there is of everything. `requests` are those of one tenant and tier in ten minutes, of which there are
    `windows` different ones.
    """

    records: int
    tenants: int
    days: int
    requests: int
    windows: int


class Found(msgspec.Struct, frozen=True):
    """`counted` is records a second of CPU time by database: stored, and counted. Times are seconds of CPU time."""

    counted: dict[str, tuple[int, int]]
    rows: dict[int, int]
    sketch_bytes: dict[int, int]
    bytes_of: dict[int, int]
    roll_hour_s: float
    roll_day_s: float
    answers: dict[str, float]


WHOLE = Scale(records=200_000, tenants=200, days=30, requests=100, windows=500)
QUICK = Scale(records=2000, tenants=3, days=2, requests=20, windows=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little of everything; writes no page")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bench-waits")
    options = parser.parse_args()
    scale = QUICK if options.quick else WHOLE
    shutil.rmtree(options.folder, ignore_errors=True)
    os.sched_setaffinity(0, {CORE})
    found = measure(scale, options.folder)
    shutil.rmtree(options.folder)
    text = page(scale, found)
    print(text)
    if not options.quick:
        PAGE.write_text(text, encoding="utf-8")


def measure(scale: Scale, folder: Path) -> Found:
    """All of it, in a folder that is not there yet."""
    counted = {"SQLite": _count(lambda name: SqlitePlace(folder / name), scale.records, lambda: 0.0)}
    with closing(PostgresServer(fsync="on")) as server:
        counted["PostgreSQL"] = _count(
            lambda name: PostgresPlace(server, folder / f"postgresql-{name}"),
            scale.records,
            lambda: sum(sum(each.cpu_times()[:2]) for each in server.processes()),
        )
    return _month(scale, SqlitePlace(folder / "month"), counted)


# -- counting ----------------------------------------------------------------------------------------------------------


def _count(open_place: Callable[[str], Place], records: int, server_s: Callable[[], float]) -> tuple[int, int]:
    """Records a second of CPU time, the server's included: stored by the writer, then counted."""
    _say(f"{records:,} records are stored and counted")
    generated = open_place("generated")
    with closing(generated.open()) as store:
        fill(generated, 0, records, STEP_NS)
        made = store.records(0, 2**62, None, records)
    place = open_place("counted")
    with closing(place.open()) as store:
        journal = Journal(place.folder / "journal")
        for record in made:
            journal.append(record)
        journal.close()
        writer = Writer(journal, store, report=print)
        begins = time.process_time() + server_s()
        writer.drain()
        stored = time.process_time() + server_s()
        done = 0
        while more := store.count_waits(TIERS, COUNTED_AT_ONCE).records:
            done += more
        counted = time.process_time() + server_s()
        total = store.waits((), 0, 2**62, {}).total
    if done != records or total.wait.count != records:
        raise SystemExit(f"of {records} records {done} were counted, and {total.wait.count} are in the windows")
    return int(records / (stored - begins)), int(records / (counted - stored))


# -- a month -----------------------------------------------------------------------------------------------------------


def _month(scale: Scale, place: SqlitePlace, counted: Mapping[str, tuple[int, int]]) -> Found:
    with closing(place.open()) as store:
        hours, days = _fill(scale, place, store)
        until = START_NS + scale.days * DAY_NS
        rows, sketches, sizes = {}, {}, {}
        for span, count, size in place.rows(
            "SELECT span_ns, count(*), sum(length(wait) + length(first_token) + length(unserved)) FROM waits GROUP BY 1"
        ):
            rows[span], sketches[span] = count, size
            sizes[span] = _bytes_of(place, span)
        answers = {name: _time(ask) for name, ask in _questions(scale, store, until).items()}
    return Found(dict(counted), rows, sketches, sizes, statistics.median(hours), max(days, default=0.0), answers)


def _fill(scale: Scale, place: SqlitePlace, store: SqliteStore) -> tuple[list[float], list[float]]:
    """A month of windows, hours and days; how long each hour and each day took to be made, of the first day."""
    random = Random(1)
    pool = [_window(random, scale.requests) for _ in range(scale.windows)]
    _say("a day of windows")
    names = [f"t{number:03}" for number in range(scale.tenants)]
    statement = f"INSERT INTO waits VALUES ({', '.join('?' * 17)})"
    with closing(sqlite3.connect(place.folder / FILE)) as connection, connection:
        connection.executemany(statement, _rows(names, pool, random))
    _say("its hours")
    taken: list[float] = []
    again = True
    while again:
        began = time.process_time()
        again = store.roll_waits(START_NS + DAY_NS)
        taken.append(time.process_time() - began)
    _say("the other days, which are alike")
    moved = COLUMNS.replace("start_ns", "start_ns + {0}", 1)
    place.run(
        "BEGIN;"
        + ";".join(
            f"INSERT INTO waits SELECT {moved.format(day * DAY_NS)} FROM waits WHERE start_ns < {START_NS + DAY_NS}"
            for day in range(1, scale.days)
        )
        + f"; UPDATE waits_made SET rolled_ns = {START_NS + scale.days * DAY_NS}; COMMIT"
    )
    return taken[:-1], taken[-1:]


def _window(random: Random, requests: int) -> tuple[object, ...]:
    """What is kept of ten minutes of a series: three of four start at once, the others wait, some give up."""
    ends = []
    for _ in range(requests):
        wait = 0 if random.random() < 0.75 else int(random.lognormvariate(20.5, 1.2))
        first = wait + int(random.lognormvariate(19.5, 0.6))
        left = random.random() < 0.02
        ends.append(
            End("t", "m", "interactive", "", "cancelled", "", 0, wait, 0, wait)
            if left
            else End("t", "m", "interactive", "m-0", "completed", "", 0, wait, first, first + 5 * NS_PER_S)
        )
    tally = Tally()
    for each in fold(ends, TIERS).windows.values():
        tally.merge(each)
    return tally.row()


def _rows(names: Sequence[str], pool: Sequence[tuple[object, ...]], random: Random) -> Iterator[tuple[object, ...]]:
    for window in range(DAY_NS // WINDOW_NS):
        for tenant in names:
            for tier in TIERS:
                yield WINDOW_NS, START_NS + window * WINDOW_NS, tenant, "m", tier, *random.choice(pool)


def _questions(scale: Scale, store: SqliteStore, until: int) -> dict[str, Callable[[], object]]:
    month = START_NS, until
    odd = START_NS + 7 * WINDOW_NS, until - 5 * WINDOW_NS
    one = {"tenant": ["t001"]}
    return {
        "one tenant, the month, by tier": lambda: store.waits(["tier"], *month, one),
        "one tenant, the month but for 70 minutes at its begin and 50 at its end": lambda: store.waits((), *odd, one),
        "one tenant, the month, by day": lambda: store.waits(["day"], *month, one),
        "one tenant, a day, by window": lambda: store.waits(["window"], until - DAY_NS, until, one),
        "all tenants, the month, by tenant and tier": lambda: store.waits(["tenant", "tier"], *month, {}),
        "all tenants, that month with odd ends, by tenant": lambda: store.waits(["tenant"], *odd, {}),
        "all tenants, the last day, by tenant": lambda: store.waits(["tenant"], until - DAY_NS, until, {}),
        "all tenants, the last hour, by tenant and tier": lambda: store.waits(
            ["tenant", "tier"], until - NS_PER_HOUR, until, {}
        ),
        "all promises and how fast they burn, once a minute": lambda: _promises(scale, store, until),
    }


def _promises(scale: Scale, store: SqliteStore, until: int) -> None:
    policy = _policy(scale.tenants)
    WaitBooks(store, clock=lambda: until, policy=lambda: policy, flush=lambda: None).look()


def _policy(tenants: int) -> Policy:
    lines = [
        "pools: {main: {gpus: 64_gpu}}",
        'models: {m: {version: "1", gpu: 1_gpu, slots: 8, context: 8Ki, engine: {kind: attached, urls: ["http://127.0.0.1:1"]}}}',
        "prices: {currency: EUR, gpu_hour: {main: 2.50}}",
        "tiers: {interactive: {queue_target: 2s, first_token_target: 3s}, standard: {queue_target: 10s}, batch: {}}",
        "tenants:",
        *(f"  t{number:03}: {{tenant: {{guaranteed: 0.1_gpu}}}}" for number in range(tenants)),
    ]
    return parse("\n".join(lines)).policy


def _bytes_of(place: SqlitePlace, span: int) -> int:
    """What the rows of a span take in the file, in proportion to what is in them."""
    text = "length(tenant) + length(model) + length(tier) + length(refused) + 40"
    of = f"sum(length(wait) + length(first_token) + length(unserved) + {text})"
    ((all_bytes,),) = place.rows("SELECT sum(pgsize) FROM dbstat WHERE name = 'waits'")
    ((part, whole),) = place.rows(f"SELECT (SELECT {of} FROM waits WHERE span_ns = {span}), (SELECT {of} FROM waits)")
    return int(all_bytes * part / whole)


def _time(ask: Callable[[], object]) -> float:
    """Seconds of CPU time, the median of some."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        ask()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)


# -- the page ----------------------------------------------------------------------------------------------------------


def page(scale: Scale, found: Found) -> str:
    """docs/results/waits.md."""
    series = scale.tenants * len(TIERS)
    requests = scale.days * DAY_NS // WINDOW_NS * scale.requests * len(TIERS)
    spans = ((WINDOW_NS, "10 minutes", "40 days"), (NS_PER_HOUR, "hour", "400 days"), (DAY_NS, "day", "for ever"))
    lines = [
        "# Waits: speed and size",
        "",
        "`make bench-waits` writes this page. What it measures is described in [waits](../waits.md).",
        "",
        "## Counting",
        "",
        f"{scale.records:,} records of 8 tenants, 3 models and 2 tiers, {NS_PER_S // STEP_NS} a second, by CPU time",
        "on one core, the server's work included: stored by the writer, as always, and then counted, 5,000 in",
        "one transaction.",
        "",
        "| | stored/s | counted/s | µs to count a record |",
        "|---|--:|--:|--:|",
        *(f"| {name} | {kept:,} | {rate:,} | {1e6 / rate:.1f} |" for name, (kept, rate) in found.counted.items()),
        "",
        "## Size",
        "",
        f"{scale.days} days of {scale.tenants} tenants with {len(TIERS)} tiers each, in SQLite: every series has",
        f"{scale.requests} requests in every ten minutes, which are {requests:,} of each tenant.",
        "",
        "| rows of | rows | bytes a row | MB for a tenant and 30 days | kept |",
        "|---|--:|--:|--:|---|",
    ]
    for span, name, kept in spans:
        size = found.bytes_of[span]
        a_month = size / scale.tenants / scale.days * 30 / 1e6
        lines.append(f"| {name} | {found.rows[span]:,} | {size // found.rows[span]} | {a_month:.2f} | {kept} |")
    lines += [
        "",
        f"An hour of all {series} series is made in {1000 * found.roll_hour_s:.0f} ms of CPU time, the last one of a",
        f"day with its day in {1000 * found.roll_day_s:.0f} ms, in one transaction.",
        "",
        "## Answers",
        "",
        "Of that month, in ms of CPU time on one core; medians of three.",
        "",
        "| question | ms |",
        "|---|--:|",
        *(f"| {name} | {1000 * took:,.0f} |" for name, took in found.answers.items()),
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine.cores()}; {machine.python()}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
