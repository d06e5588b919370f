"""docs/results/ledger.md: what was found, in words."""

from datetime import UTC, datetime

import msgspec
from benchmarks import machine
from benchmarks.ledger_data import GPUS, TENANTS

PER_S_MIN = 20_000  # records a second on one core
BILL_S_MAX = 10.0  # a month's bill over ten million requests
GB = 1_000_000_000


class Ingest(msgspec.Struct, frozen=True):
    """Records a second: of CPU time, and of time as it passed."""

    records: int
    per_cpu_s: int
    per_s: int


class Gateway(msgspec.Struct, frozen=True):
    """Answers while records are written at this speed, and while there are none to write."""

    records_per_s: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    quiet_p50_ms: float
    quiet_p99_ms: float


class Month(msgspec.Struct, frozen=True):
    """A month of hours that were closed, and what was asked of it."""

    requests: int
    hours: int
    postings: int
    lines: int
    close_ms: float
    close_ms_max: float
    bill_s: float
    day_ms: float
    trace_ms: float


class Year(msgspec.Struct, frozen=True):
    """A year, with the records of its last days and with all of them (`whole`)."""

    requests: int
    kept: int
    kept_bytes: int
    books_bytes: int
    whole_bytes: int
    month_bill_s: float
    bill_s: float
    close_ms: float
    day_ms: float
    trace_ms: float
    whole_bill_s: float
    whole_day_ms: float
    whole_trace_ms: float
    prune_per_s: int


class Found(msgspec.Struct, frozen=True):
    """What the parts found; None where one was not run."""

    ingest: dict[str, Ingest] | None = None
    gateway: Gateway | None = None
    month: Month | None = None
    month_postgresql: Month | None = None
    year: Year | None = None


def page(found: Found) -> str:
    parts = [
        "# The ledger's speed and size",
        f"""\
`make bench-ledger` writes this page. The database makes the data itself: requests of {TENANTS} tenants on {GPUS} GPUs,
two apps and three models each, one in ten borrowed, one in a hundred failed and one in a hundred cut by its client.""",
    ]
    if found.ingest is not None:
        parts += _ingest(found.ingest)
    if found.gateway is not None:
        parts += _gateway(found.gateway)
    if found.month is not None and found.month_postgresql is not None:
        parts += _month(found.month, found.month_postgresql)
    if found.year is not None:
        parts += _year(found.year)
    parts.append(f"{datetime.now(UTC):%Y-%m-%d}, {machine.cores()}; {machine.python()}.")
    return "\n\n".join(parts) + "\n"


def _ingest(found: dict[str, Ingest]) -> list[str]:
    rows = [
        f"| {name} | {each.per_cpu_s:,} | {each.per_s:,} | {'yes' if each.per_cpu_s >= PER_S_MIN else 'no'} |"
        for name, each in found.items()
    ]
    count = next(iter(found.values())).records
    return [
        "## Records in",
        f"""\
From the journal's files to the commit of the last record, as the writer does it: a note at the dispatch and a record at
the end of each of {count:,} attempts are read and decoded, batches are committed and synced. Both processes share one
core. By its CPU time, the server's included, and by the clock, which counts what else the machine did; medians of
three rounds.""",
        "\n".join(
            [
                "|  | records/s of CPU time | records/s by the clock | goal: 20,000 |",
                "|---|--:|--:|:-:|",
                *rows,
            ]
        ),
    ]


def _gateway(found: Gateway) -> list[str]:
    rows = [
        ("p50, ms", f"{found.p50_ms:.1f}", f"{found.quiet_p50_ms:.1f}"),
        ("p99, ms", f"{found.p99_ms:.1f}", f"{found.quiet_p99_ms:.1f}"),
    ]
    return [
        "## Answers meanwhile",
        f"""\
The product is started with a journal of records that are not in its store, as after a time without it, and asked about
{found.requests_per_s:,.0f} times a second while its writer works them off in the same process, on the same core, at
{found.records_per_s:,} records a second; then the same once more with nothing left.""",
        "\n".join(
            [
                "|  | while it works off its journal | afterwards |",
                "|---|--:|--:|",
                *(f"| {' | '.join(row)} |" for row in rows),
            ]
        ),
    ]


def _month(sqlite: Month, postgres: Month) -> list[str]:
    met = "met" if max(sqlite.bill_s, postgres.bill_s) <= BILL_S_MAX else "missed"
    rows = [
        ("close an hour, ms", f"{sqlite.close_ms:,.0f}", f"{postgres.close_ms:,.0f}"),
        ("the slowest hour, ms", f"{sqlite.close_ms_max:,.0f}", f"{postgres.close_ms_max:,.0f}"),
        ("the month's bill by account, app and model, s", f"{sqlite.bill_s:.2f}", f"{postgres.bill_s:.2f}"),
        ("usage of one day by tenant and model, ms", f"{sqlite.day_ms:,.0f}", f"{postgres.day_ms:,.0f}"),
        ("trace of one request, ms", f"{sqlite.trace_ms:.1f}", f"{postgres.trace_ms:.1f}"),
    ]
    return [
        "## A month",
        f"""\
{sqlite.requests:,} requests in {sqlite.hours} hours, {sqlite.requests // sqlite.hours:,} an hour. Every hour was
closed as the product closes it, and credits the pool with its capacity to the unit: {sqlite.postings:,} postings about
{sqlite.lines:,} different things. The goal for the bill, {BILL_S_MAX:.0f} s, is {met}.""",
        "\n".join(
            [
                "|  | SQLite | PostgreSQL |",
                "|---|--:|--:|",
                *(f"| {' | '.join(row)} |" for row in rows),
            ]
        ),
    ]


def _year(found: Year) -> list[str]:
    rows = [
        ("records", f"{found.kept:,}", f"{found.requests:,}"),
        ("size, GB", f"{found.kept_bytes / GB:.1f}", f"{found.whole_bytes / GB:.1f}"),
        ("of which books and notes", f"{found.books_bytes / GB:.1f}", f"{found.books_bytes / GB:.1f}"),
        ("bytes for a record and its loans", *(f"{size:.0f}" for size in _bytes(found))),
        ("the year's bill, s", f"{found.bill_s:.1f}", f"{found.whole_bill_s:.1f}"),
        ("usage of one day, ms", f"{found.day_ms:,.0f}", f"{found.whole_day_ms:,.0f}"),
        ("trace of one request, ms", f"{found.trace_ms:.1f}", f"{found.whole_trace_ms:.1f}"),
    ]
    return [
        "## A year",
        f"""\
{found.requests:,} requests in SQLite, with the records of the last 90 days, which is the default `retention`, and with
all of them. Postings and counts are kept for ever: those of the month above, repeated for each month. Half an hour
passes between the two columns, in which other work on the machine changes: compare sizes, not times.""",
        "\n".join(
            [
                "|  | 90 days of records | all records |",
                "|---|--:|--:|",
                *(f"| {' | '.join(row)} |" for row in rows),
            ]
        ),
        f"""\
With 90 days the bill of the last month takes {found.month_bill_s:.2f} s, and finding what an hour's books are made of
{found.close_ms:,.0f} ms. Old records are forgotten at {found.prune_per_s:,} a second, 5,000 in a transaction.""",
    ]


def _bytes(found: Year) -> tuple[float, float]:
    """What a record takes, with those of the last days and with all."""
    books = found.books_bytes
    return (found.kept_bytes - books) / found.kept, (found.whole_bytes - books) / found.requests
