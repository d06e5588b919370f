"""The ledger in its stores: how fast records go in, and how long bills take over a month and over a year.

    python -m benchmarks.bench_ledger [--quick] [--folder FOLDER] [PART ...]

Parts are ingest, gateway, month, month-postgresql and year, all of them where none is named. What each found is kept in
FOLDER, and the page docs/results/ledger.md is written when all are there. The year needs 45 GB of disk and an hour.
--quick takes little of everything and writes no page.
"""

import argparse
import asyncio
import gc
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import psutil
from benchmarks import ledger_data as data
from benchmarks.ledger_gateway import gateway
from benchmarks.ledger_page import Found, Ingest, Month, Year, page
from tests.store.places import Place, PostgresPlace, SqlitePlace
from tests.store.server import PostgresServer

from commonpool.app import COLLECT_EVERY
from commonpool.app.billing import Bills
from commonpool.config.billing import rates
from commonpool.control.books import hour_from
from commonpool.control.reconciling import compare
from commonpool.core.closing import close
from commonpool.core.model import NS_PER_HOUR, Outcome, UsageRecord
from commonpool.store.contract import Store
from commonpool.store.journal import Journal
from commonpool.store.ledger import Closing
from commonpool.store.sqlite import FILE
from commonpool.store.writer import Writer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "ledger.md"
CORE = 0
ROUNDS = 3
CHUNK = 500_000  # generated in one transaction
DAYS_KEPT = 90  # the default retention
BY = ("app", "model")
PARTS = ("ingest", "gateway", "month", "month-postgresql", "year")


class Scale(msgspec.Struct, frozen=True):
    """How much there is of everything."""

    ingest: int
    backlog: int
    month: int
    month_hours: int
    year: int
    year_hours: int


WHOLE = Scale(200_000, 600_000, 10_000_000, 30 * 24, 100_000_000, 365 * 24)
QUICK = Scale(2000, 600_000, 10_000, 24, 100_000, 96)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little of everything; writes no page")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bench-ledger")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    scale = QUICK if options.quick else WHOLE
    kept = folder / ("quick.json" if options.quick else "found.json")
    found = msgspec.json.decode(kept.read_bytes(), type=Found) if kept.exists() else Found()
    cores = os.sched_getaffinity(0)
    for part in options.parts or PARTS:
        print(f"{part} ...", file=sys.stderr, flush=True)
        match part:
            case "ingest":
                found = msgspec.structs.replace(found, ingest=ingest(scale, folder))
            case "gateway":
                records = _records(scale.backlog, folder / "gateway")
                found = msgspec.structs.replace(found, gateway=gateway(records, ROUNDS))
            case "month":
                shutil.rmtree(folder / "month", ignore_errors=True)
                found = msgspec.structs.replace(found, month=month(scale, SqlitePlace(folder / "month")))
            case "month-postgresql":
                with _server() as server:
                    place = PostgresPlace(server, folder / "postgresql")
                    found = msgspec.structs.replace(found, month_postgresql=month(scale, place))
            case _:
                found = msgspec.structs.replace(found, year=year(scale, folder))
        kept.write_bytes(msgspec.json.encode(found))
        os.sched_setaffinity(0, cores)  # some parts have a core to themselves
    text = page(found)
    print(text)
    if not options.quick and None not in msgspec.structs.astuple(found):
        PAGE.write_text(text, encoding="utf-8")


# -- ingest ------------------------------------------------------------------------------------------------------------


def ingest(scale: Scale, folder: Path) -> dict[str, Ingest]:
    """Records a second, by database, on one core, from the journal's files to the commit of the last record."""
    records = _records(scale.ingest, folder / "ingest")
    os.sched_setaffinity(0, {CORE})
    gc.freeze()  # as the product does
    gc.set_threshold(COLLECT_EVERY)
    with _server() as server:
        rounds: dict[str, list[Ingest]] = {"SQLite": [], "PostgreSQL": []}
        for _ in range(ROUNDS):
            with _emptied(folder / "ingest"):
                rounds["SQLite"].append(_ingest(SqlitePlace(folder / "ingest"), records))
            with _emptied(folder / "ingest"), closing(PostgresPlace(server, folder / "ingest")) as place:
                rounds["PostgreSQL"].append(_ingest(place, records, server.processes))
    return {name: _median(samples) for name, samples in rounds.items()}


def _ingest(place: Place, records: list[UsageRecord], servers: Callable[[], list[psutil.Process]] = list) -> Ingest:
    with closing(place.open()) as store:
        journal = Journal(place.folder / "journal")
        for record in records:
            journal.append(_noted(record))
            journal.append(record)
        journal.close()
        writer = Writer(journal, store, report=print)
        known = {each: sum(each.cpu_times()[:2]) for each in servers()}
        wall, cpu = time.perf_counter(), time.process_time()
        writer.drain()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        cpu += sum(sum(each.cpu_times()[:2]) - known.get(each, 0.0) for each in servers())
    ((count,),) = place.rows("SELECT count(*) FROM usage")
    if count != len(records):
        raise SystemExit(f"{len(records)} records were written and {count} are in the store")
    return Ingest(records=count, per_cpu_s=int(count / cpu), per_s=int(count / wall))


def _noted(record: UsageRecord) -> UsageRecord:
    """What was noted of it when it was dispatched."""
    return msgspec.structs.replace(record, outcome=Outcome.RUNNING, run_ns=0, total_ns=record.wait_ns, milli_gpu_ns=0)


def _median(samples: list[Ingest]) -> Ingest:
    return Ingest(
        samples[0].records,
        int(statistics.median(sample.per_cpu_s for sample in samples)),
        int(statistics.median(sample.per_s for sample in samples)),
    )


def _records(count: int, folder: Path) -> list[UsageRecord]:
    place = SqlitePlace(folder)
    with _emptied(folder), closing(place.open()) as store:
        fill(place, 0, count, 250_000_000)
        return list(store.records(0, 2**63 - 1, None, count))


# -- a month -----------------------------------------------------------------------------------------------------------


def month(scale: Scale, place: Place) -> Month:
    """A month of hours, closed as the product closes them. What it leaves in SQLite the year is made from."""
    end_ns = data.START_NS + scale.month_hours * NS_PER_HOUR
    with closing(place.open()) as store:
        store.add_meters(data.notes(scale.month_hours))
        hours = []
        for hour in range(scale.month_hours):
            first, last = (scale.month * each // scale.month_hours for each in (hour, hour + 1))
            fill(place, first, last, scale.month_hours * NS_PER_HOUR // scale.month)
            hours.append(_close(store, data.START_NS + hour * NS_PER_HOUR))
        answers = _answers(store, data.START_NS, end_ns, end_ns - NS_PER_HOUR)
        ((postings, lines),) = place.rows("SELECT (SELECT count(*) FROM postings), (SELECT count(*) FROM lines)")
    return Month(
        requests=scale.month,
        hours=scale.month_hours,
        postings=postings,
        lines=lines,
        close_ms=statistics.median(hours),
        close_ms_max=max(hours),
        bill_s=answers["bill"],
        day_ms=1000 * answers["day"],
        trace_ms=1000 * answers["trace"],
    )


def _close(store: Store, start: int) -> float:
    """Closes an hour as `control.books` does, in ms."""
    config = data.config()
    began = time.perf_counter()
    work = store.hour_work("main", start)
    hour = hour_from(work, store.last_standing("main", start), rates(config, "main", start))
    postings = close(hour)
    books = compare(hour, postings).reconciliation
    if books.charged != books.devices:
        raise SystemExit(f"the books of the hour from {start} do not close: {books}")
    store.close_hour(Closing("main", start, postings, books, work))
    return 1000 * (time.perf_counter() - began)


def _answers(store: Store, start_ns: int, end_ns: int, busy_ns: int) -> dict[str, float]:
    """Seconds that each question takes; the records of the hour from `busy_ns` on are there."""
    config = data.config()
    bills = Bills(store, lambda: config, lambda: end_ns, lambda: None)
    request = store.records(busy_ns, busy_ns + NS_PER_HOUR, None, 1)[0].request_id
    day_ns = 24 * NS_PER_HOUR
    questions: dict[str, Callable[[], object]] = {
        "bill": lambda: asyncio.run(bills.bill(start_ns, end_ns, BY, {})),
        "day": lambda: store.usage(["tenant", "model"], busy_ns + NS_PER_HOUR - day_ns, busy_ns + NS_PER_HOUR),
        "trace": lambda: asyncio.run(bills.settled(request)),
    }
    return {name: statistics.median(_time(ask) for _ in range(ROUNDS)) for name, ask in questions.items()}


# -- a year ------------------------------------------------------------------------------------------------------------


def year(scale: Scale, folder: Path) -> Year:
    """A year of requests in SQLite, with the books of the month again and again."""
    made = folder / "year"
    shutil.rmtree(made, ignore_errors=True)
    step_ns = scale.year_hours * NS_PER_HOUR // scale.year
    end_ns = data.START_NS + scale.year_hours * NS_PER_HOUR
    kept = scale.year * DAYS_KEPT // 365
    place = SqlitePlace(made)
    with closing(place.open()) as store:
        # What a product has that has kept its records for ninety days: the last ones.
        fill(place, scale.year - kept, scale.year, step_ns)
        _repeat_books(made, folder / "month", scale)
        with_retention = _answers(store, data.START_NS, end_ns, end_ns - NS_PER_HOUR)
        kept_bytes, books_bytes = _size(place), _books_bytes(place)
        month_s = _time(lambda: _bill(store, end_ns - 30 * 24 * NS_PER_HOUR, end_ns))
        closing_ms = statistics.median(
            _time(lambda: store.hour_work("main", end_ns - NS_PER_HOUR)) * 1000 for _ in range(ROUNDS)
        )
        # And those of the whole year.
        fill(place, 0, scale.year - kept, step_ns)
        everything = _answers(store, data.START_NS, end_ns, end_ns - NS_PER_HOUR)
        found = Year(
            requests=scale.year,
            kept=kept,
            kept_bytes=kept_bytes,
            books_bytes=books_bytes,
            whole_bytes=_size(place),
            month_bill_s=month_s,
            bill_s=with_retention["bill"],
            close_ms=closing_ms,
            day_ms=1000 * with_retention["day"],
            trace_ms=1000 * with_retention["trace"],
            whole_bill_s=everything["bill"],
            whole_day_ms=1000 * everything["day"],
            whole_trace_ms=1000 * everything["trace"],
            prune_per_s=_prune(store, scale),
        )
    shutil.rmtree(made)
    return found


def _repeat_books(folder: Path, month_folder: Path, scale: Scale) -> None:
    """The books of the month's hours, for each month of the year; what the pool had for the last hours."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        connection.execute("ATTACH DATABASE ? AS month", (str(month_folder / FILE),))
        connection.execute("BEGIN")
        connection.execute("INSERT INTO lines SELECT * FROM month.lines")
        end_ns = data.START_NS + scale.year_hours * NS_PER_HOUR
        for first in range(0, scale.year_hours, scale.month_hours):
            for table in ("postings", "hourly", "hours", "standings", "spans"):
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                moved = [f"{name} + {first * NS_PER_HOUR}" if name in _MOVED else name for name in names]
                time_of = "hour_ns" if "hour_ns" in names else "start_ns"
                connection.execute(
                    f"INSERT INTO {table} SELECT {', '.join(moved)} FROM month.{table} WHERE {time_of} < ?",
                    (end_ns - first * NS_PER_HOUR,),
                )
        connection.execute("UPDATE hours SET seq = (SELECT max(seq) FROM usage)")
        connection.execute("COMMIT")


_MOVED = ("hour_ns", "about_ns", "start_ns", "end_ns")


def _size(place: SqlitePlace) -> int:
    ((pages, bytes_a_page),) = place.rows("SELECT * FROM pragma_page_count, pragma_page_size")
    return int(pages * bytes_a_page)


def _books_bytes(place: SqlitePlace) -> int:
    """What all but the records takes."""
    tables = "'lines', 'postings', 'hourly', 'hours', 'parts', 'running', 'periods', 'readings', 'standings', 'spans'"
    names = f"SELECT name FROM sqlite_master WHERE tbl_name IN ({tables})"
    ((size,),) = place.rows(f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({names})")
    return int(size)


def _prune(store: Store, scale: Scale) -> int:
    """Records that are forgotten in a second, 5,000 at a time."""
    before_ns = data.START_NS + scale.year_hours * NS_PER_HOUR // 2
    began, count = time.perf_counter(), 0
    for _ in range(20):
        count += store.prune(before_ns, 5000)
    return int(count / (time.perf_counter() - began))


# -- what they stand on ------------------------------------------------------------------------------------------------


def fill(place: Place, first: int, last: int, step_ns: int) -> None:
    """Requests from `first` until `last`, made by the database."""
    database = "sqlite" if isinstance(place, SqlitePlace) else "postgresql"
    for start in range(first, last, CHUNK):
        for statement in data.statements(database, start, min(start + CHUNK, last) - 1, step_ns):
            place.run(statement)
    if database == "postgresql" and first == 0:
        place.run("ANALYZE")


def _bill(store: Store, start_ns: int, end_ns: int) -> None:
    config = data.config()
    asyncio.run(Bills(store, lambda: config, lambda: end_ns, lambda: None).bill(start_ns, end_ns, BY, {}))


def _time(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    shutil.rmtree(folder, ignore_errors=True)
    yield
    shutil.rmtree(folder)


@contextmanager
def _server() -> Iterator[PostgresServer]:
    with closing(PostgresServer(fsync="on")) as server:
        yield server


if __name__ == "__main__":
    main()
