"""The generated year is the same in every database, its books close, and the page says what was found."""

from contextlib import closing
from pathlib import Path

import msgspec
from benchmarks.bench_ledger import Scale, fill, month, year
from benchmarks.ledger_page import Found, Gateway, Ingest, Month, Year, page

from commonpool.core.model import NS_PER_S
from tests.store.places import PostgresPlace, SqlitePlace
from tests.store.server import PostgresServer

TINY = Scale(ingest=10, backlog=10, month=200, month_hours=2, year=500, year_hours=5)


def test_both_databases_make_the_same_records(tmp_path: Path) -> None:
    found = []
    with closing(PostgresServer()) as server:
        for place in (SqlitePlace(tmp_path / "sqlite"), PostgresPlace(server, tmp_path / "postgresql")):
            with closing(place.open()) as store:
                fill(place, 1_999_990, 2_000_010, NS_PER_S)
                found.append(store.records(0, 2**63 - 1, None, 100))
    assert found[0] == found[1]
    assert len({record.request_id[:16] for record in found[0]}) == 2
    assert sum(bool(record.loans) for record in found[0]) == 2
    for record in found[0]:
        assert record.milli_gpu_ns == record.milli_gpu * record.run_ns
        assert record.total_ns == record.wait_ns + record.run_ns


def test_a_tiny_month_and_a_year_made_of_it(tmp_path: Path) -> None:
    closed = month(TINY, SqlitePlace(tmp_path / "month"))  # it ends where the books of an hour do not close
    assert (closed.requests, closed.hours) == (200, 2)
    assert closed.postings > closed.lines > 8
    made = year(TINY, tmp_path)
    assert (made.requests, made.kept) == (500, 123)
    assert made.whole_bytes >= made.kept_bytes > made.books_bytes > 0


def test_the_page_says_what_was_measured_and_whether_it_is_enough() -> None:
    one = Month(10_000_000, 720, 250_000, 515, 90.0, 250.0, 1.5, 800.0, 3.0)
    slow = msgspec.structs.replace(one, bill_s=11.0)
    whole = Year(100, 25, 9 * 10**9, 10**9, 33 * 10**9, 1.0, 12.0, 80.0, 700.0, 3.0, 12.5, 710.0, 3.1, 50_000)
    found = Found(
        {"SQLite": Ingest(200_000, 30_000, 25_000), "PostgreSQL": Ingest(200_000, 19_000, 9_000)},
        Gateway(9_000, 980.0, 1.0, 4.0, 0.9, 3.5),
        one,
        one,
        whole,
    )
    said = page(found)
    assert "| SQLite | 30,000 | 25,000 | yes |" in said
    assert "| PostgreSQL | 19,000 | 9,000 | no |" in said
    assert "| p99, ms | 4.0 | 3.5 |" in said
    assert "is met." in said
    assert "| size, GB | 9.0 | 33.0 |" in said
    assert "is missed." in page(msgspec.structs.replace(found, month_postgresql=slow))


def test_what_was_not_run_is_not_on_the_page() -> None:
    assert "## " not in page(Found())
