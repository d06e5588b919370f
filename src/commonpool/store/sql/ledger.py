"""The ledger in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import Span, Standing, Work
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from commonpool.store.books import COUNTS, Line, Question, counts_of, postings_of, sum_counts, sum_postings
from commonpool.store.ledger import (
    Closing,
    EndPlace,
    Period,
    PeriodClosedError,
    Reading,
    ReadingConflictError,
    Reconciliation,
    books_begin,
)
from commonpool.store.sql.connection import Connection, Row, one_of, placeholders
from commonpool.store.sql.hour import (
    ENDED,
    TYPE,
    decode_reading,
    decode_reconciliation,
    decode_record,
    standings,
    work_of_row,
)
from commonpool.store.sql.numbers import split, summed, summed_pair, total
from commonpool.store.sql.usage import select_records

_SOME: Final = 500  # values that are bound at once
_LINE: Final = ("pool", "kind", "debit", "credit", "meter", *Work.__struct_fields__)
_POSTINGS: Final = ("hour_ns", "line", "about_ns", "micro", "quantity_high", "quantity")
_HOURLY: Final = ("hour_ns", "line", *COUNTS[:-1], "milli_gpu_ns_high", "milli_gpu_ns")
_PERIOD: Final = ", ".join(Period.__struct_fields__)


# -- what is noted -----------------------------------------------------------------------------------------------------


def save_running(connection: Connection, records: Iterable[UsageRecord]) -> None:
    """See `LedgerSink.save_running`."""
    connection.run("DELETE FROM running")
    connection.insert(
        "running",
        ("request_id", "attempt", "pool", "record"),
        ((each.request_id, each.attempt, each.pool, _json(each)) for each in records),
    )


def running(connection: Connection) -> tuple[UsageRecord, ...]:
    """See `LedgerStore.running`."""
    rows = connection.query("SELECT record FROM running ORDER BY request_id, attempt")
    return tuple(decode_record(text) for (text,) in rows)


def add_meters(connection: Connection, notes: Iterable[Standing | Span]) -> None:
    """See `LedgerSink.add_meters`."""
    for note in notes:
        if isinstance(note, Standing):
            connection.run(
                "INSERT INTO standings (pool, start_ns, end_ns, milli_gpu, guaranteed) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (pool, start_ns) DO UPDATE SET end_ns = excluded.end_ns"
                " WHERE standings.end_ns < excluded.end_ns",
                (note.pool, note.start_ns, note.end_ns, note.milli_gpu, _json(note.guaranteed)),
            )
        else:
            connection.run(
                "INSERT INTO spans (pool, start_ns, id, phase, model, account, milli_gpu, end_ns)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (pool, start_ns, id, phase) DO UPDATE"
                " SET end_ns = excluded.end_ns WHERE spans.end_ns < excluded.end_ns",
                (
                    note.pool,
                    note.start_ns,
                    note.id,
                    note.phase.value,
                    note.model,
                    note.account,
                    note.milli_gpu,
                    note.end_ns,
                ),
            )


def first_noted(connection: Connection, pool: str) -> int | None:
    """See `LedgerStore.first_noted`."""
    ((hour,),) = connection.query("SELECT min(hour_ns) FROM hours WHERE pool = ?", (pool,))
    ((standing,),) = connection.query("SELECT min(start_ns) FROM standings WHERE pool = ?", (pool,))
    return books_begin(hour, standing)


def last_standing(connection: Connection, pool: str, before_ns: int) -> Standing | None:
    """See `LedgerStore.last_standing`."""
    found = standings(connection, "pool = ? AND start_ns < ? ORDER BY start_ns DESC LIMIT 1", (pool, before_ns))
    return found[0] if found else None


# -- the books ---------------------------------------------------------------------------------------------------------


def close_hour(connection: Connection, closing: Closing) -> bool:
    """See `LedgerStore.close_hour`."""
    is_new = connection.run(
        "INSERT INTO hours (pool, hour_ns, seq, reconciliation) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (closing.pool, closing.hour_ns, closing.work.seq, _json(closing.reconciliation)),
    )
    if not is_new:
        return False
    quantities, counts = postings_of(closing), counts_of(closing)
    numbers = _numbers(connection, closing.pool, {*(line for line, _, _ in quantities), *counts})
    connection.insert(
        "postings",
        _POSTINGS,
        (
            (closing.hour_ns, numbers[line], about_ns, micro, *split(quantity))
            for (line, about_ns, micro), quantity in quantities.items()
        ),
    )
    connection.insert(
        "hourly",
        _HOURLY,
        ((closing.hour_ns, numbers[line], *each[:-1], *split(each[-1])) for line, each in counts.items()),
    )
    connection.insert(
        "parts",
        ("request_id", "attempt", "hour_ns", "until_ns", "posted"),
        ((each.request_id, each.attempt, each.hour_ns, each.until_ns, _json(each.use)) for each in closing.work.parts),
    )
    ids = closing.work.readings
    for some in (ids[first : first + _SOME] for first in range(0, len(ids), _SOME)):
        connection.run(
            f"UPDATE readings SET posted_until_ns = ? WHERE {one_of('id', some)}",  # noqa: S608 - values are bound
            (closing.hour_ns + NS_PER_HOUR, *some),
        )
    return True


def closed_until(connection: Connection, pool: str) -> int | None:
    """See `LedgerStore.closed_until`."""
    ((last,),) = connection.query("SELECT max(hour_ns) FROM hours WHERE pool = ?", (pool,))
    return None if last is None else int(last) + NS_PER_HOUR


def posting_sums(connection: Connection, question: Question) -> tuple[PostingSum, ...]:
    """See `LedgerStore.posting_sums`. Most rows differ by their hour alone: SQL adds those up, Python the rest."""
    rows = connection.query(
        "SELECT line, micro, CASE WHEN about_ns < ? THEN 1 ELSE 0 END AS correction,"  # noqa: S608 - values are bound
        f" {summed_pair('quantity')} FROM postings WHERE hour_ns >= ? AND hour_ns < ? GROUP BY line, micro, correction",
        (question.since_ns, question.since_ns, question.until_ns),
    )
    lines = _lines_of(connection, rows)
    return sum_postings(
        question,
        ((lines[line], micro, bool(correction), total(high, low)) for line, micro, correction, high, low in rows),
    )


def hourly_sums(connection: Connection, question: Question) -> tuple[HourlySum, ...]:
    """See `LedgerStore.hourly_sums`."""
    sums = ", ".join((*map(summed, COUNTS[:-1]), summed_pair(COUNTS[-1])))
    rows = connection.query(
        f"SELECT line, {sums} FROM hourly WHERE hour_ns >= ? AND hour_ns < ? GROUP BY line",  # noqa: S608 - values are bound
        (question.since_ns, question.until_ns),
    )
    lines = _lines_of(connection, rows)
    return sum_counts(question, ((lines[line], list(map(total, sums[::2], sums[1::2]))) for line, *sums in rows))


def reconciliations(connection: Connection, since_ns: int, until_ns: int) -> tuple[Reconciliation, ...]:
    """See `LedgerStore.reconciliations`."""
    rows = connection.query(
        "SELECT reconciliation FROM hours WHERE hour_ns >= ? AND hour_ns < ? ORDER BY pool, hour_ns",
        (since_ns, until_ns),
    )
    return tuple(decode_reconciliation(text) for (text,) in rows)


def worked(
    connection: Connection, question: Question, after: EndPlace | None, limit: int, looked_ns: int | None
) -> tuple[UsageRecord, ...]:
    """See `LedgerStore.worked`."""
    conditions = ["u.seq > 0"]  # all
    values: list[Any] = []
    for name, allowed in question.filters.items():
        conditions.append(one_of(TYPE if name == "type" else f"u.{name}", sorted(allowed)))
        values.extend(sorted(allowed))
    which = " AND ".join(conditions)
    order = f"({ENDED}, u.request_id, u.attempt) > (?, ?, ?) ORDER BY {ENDED}, u.request_id, u.attempt LIMIT ?"
    place = after or (-1, "", 0)
    since_ns, until_ns = max(question.since_ns, place[0] - 1), question.until_ns
    found = select_records(
        connection,
        f"{which} AND {ENDED} > ? AND {ENDED} <= ? AND {order}",
        (*values, since_ns, until_ns if looked_ns is None else min(until_ns, looked_ns), *place, limit),
    )
    if len(found) == limit or looked_ns is not None:
        return found
    # Those that go on are few: the books of the last hour name them.
    going_on = "(u.request_id, u.attempt) IN (SELECT p.request_id, p.attempt FROM parts AS p WHERE p.hour_ns = ?)"
    return found + select_records(
        connection,
        f"{which} AND {going_on} AND {ENDED} > ? AND {order}",
        (*values, until_ns - NS_PER_HOUR, until_ns, *place, limit - len(found)),
    )


def ending(connection: Connection, since_ns: int, until_ns: int, number: int) -> int | None:
    """See `LedgerStore.ending`: of the index alone."""
    rows = connection.query(
        f"SELECT {ENDED} FROM usage AS u WHERE {ENDED} > ? AND {ENDED} <= ? ORDER BY {ENDED} LIMIT 1 OFFSET ?",  # noqa: S608 - ours
        (since_ns, until_ns, number - 1),
    )
    return rows[0][0] if rows else None


# -- readings and periods ----------------------------------------------------------------------------------------------


def add_reading(connection: Connection, reading: Reading) -> bool:
    """See `LedgerStore.add_reading`."""
    known = connection.query("SELECT reading FROM readings WHERE id = ?", (reading.id,))
    if known:
        if decode_reading(known[0][0]) != reading:
            raise ReadingConflictError(reading)
        return False
    for name in _closed_in(connection, reading.end_ns - 1, reading.end_ns):
        raise PeriodClosedError.of_reading(reading, name)
    connection.run(
        "INSERT INTO readings (id, pool, start_ns, end_ns, posted_until_ns, reading) VALUES (?, ?, ?, ?, ?, ?)",
        (reading.id, reading.pool, reading.start_ns, reading.end_ns, reading.start_ns, _json(reading)),
    )
    return True


def add_period(connection: Connection, period: Period) -> None:
    """See `LedgerStore.add_period`."""
    for name in _closed_in(connection, period.start_ns, period.end_ns):
        raise PeriodClosedError.of_period(period.name, name)
    connection.run(
        f"INSERT INTO periods ({_PERIOD}) VALUES ({placeholders(Period.__struct_fields__)})",  # noqa: S608 - names are ours
        msgspec.structs.astuple(period),
    )


def periods(connection: Connection) -> tuple[Period, ...]:
    """See `LedgerStore.periods`."""
    return tuple(Period(*row) for row in connection.query(f"SELECT {_PERIOD} FROM periods ORDER BY start_ns"))  # noqa: S608 - names are ours


def _closed_in(connection: Connection, start_ns: int, end_ns: int) -> list[str]:
    """The first closed period that has a part of this time."""
    rows = connection.query(
        "SELECT name FROM periods WHERE start_ns < ? AND end_ns > ? ORDER BY start_ns LIMIT 1", (end_ns, start_ns)
    )
    return [name for (name,) in rows]


# -- retention ---------------------------------------------------------------------------------------------------------


def prune(connection: Connection, before_ns: int, limit: int) -> int:
    """See `LedgerStore.prune`."""
    limits = {
        pool: min(before_ns, closed_until(connection, pool) or 0)
        for (pool,) in connection.query("SELECT DISTINCT pool FROM standings")
    }
    conditions = [f"{ENDED} < ?", "u.seq < (SELECT max(seq) FROM usage)"]
    values: list[Any] = [before_ns]
    for pool, until_ns in limits.items():
        conditions.append(f"NOT (u.pool = ? AND {ENDED} > ?)")
        values += [pool, until_ns]
    old = f"FROM usage AS u WHERE {' AND '.join(conditions)} ORDER BY {ENDED}, u.seq LIMIT ?"
    values.append(limit)
    for table in ("loans", "parts"):
        connection.run(
            f"DELETE FROM {table} WHERE (request_id, attempt) IN (SELECT u.request_id, u.attempt {old})",  # noqa: S608 - bound
            values,
        )
    count = connection.run(f"DELETE FROM usage WHERE seq IN (SELECT u.seq {old})", values)  # noqa: S608 - values are bound
    for pool, until_ns in limits.items():
        connection.run("DELETE FROM spans WHERE pool = ? AND start_ns < ? AND end_ns <= ?", (pool, until_ns, until_ns))
        connection.run(
            "DELETE FROM standings WHERE pool = ? AND start_ns < ? AND end_ns <= ?"
            " AND start_ns < (SELECT max(start_ns) FROM standings WHERE pool = ?)",
            (pool, until_ns, until_ns, pool),
        )
    return count


# -- rows --------------------------------------------------------------------------------------------------------------


def _lines(connection: Connection, which: str, values: Sequence[Any]) -> dict[int, Line]:
    """The lines that a WHERE clause finds, by their numbers."""
    rows = connection.query(f"SELECT line, {', '.join(_LINE)} FROM lines WHERE {which}", values)  # noqa: S608 - bound
    return {number: _line(row) for number, *row in rows}


def _lines_of(connection: Connection, rows: Iterable[Row]) -> dict[int, Line]:
    """The lines that rows begin with the number of."""
    numbers = sorted({row[0] for row in rows})
    found: dict[int, Line] = {}
    for first in range(0, len(numbers), _SOME):
        some = numbers[first : first + _SOME]
        found |= _lines(connection, one_of("line", some), some)
    return found


def _numbers(connection: Connection, pool: str, lines: Collection[Line]) -> dict[Line, int]:
    """The numbers of lines of a pool; those that have none get one."""
    known = {line: number for number, line in _lines(connection, "pool = ?", (pool,)).items()}
    ((last,),) = connection.query("SELECT coalesce(max(line), 0) FROM lines")
    new = {line: number for number, line in enumerate(sorted(set(lines) - known.keys()), last + 1)}
    connection.insert(
        "lines",
        ("line", *_LINE),
        (
            (number, line.pool, line.kind, line.debit, line.credit, line.meter, *_work_values(line.work))
            for line, number in new.items()
        ),
    )
    return known | new


def _line(row: Sequence[Any]) -> Line:
    pool, kind, debit, credit, meter, *work = row
    return Line(pool, kind, debit, credit, meter, work_of_row(work))


def _work_values(work: Work) -> Row:
    *texts, stream = msgspec.structs.astuple(work)
    return *texts, int(stream)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
