"""Usage in SQL: each of these runs on one connection, inside a transaction of the store's, so its parts agree.

A sum of nanoseconds times thousandths of a GPU passes 64 bits after 2,500 GPU-hours, and one record may: see `numbers`.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from commonpool.core.model import NS_PER_HOUR, Loan, LoanEnd, Outcome, TokenSource, UsageRecord, Wait
from commonpool.core.pricing import exact_cost
from commonpool.core.standing import Before, Passage
from commonpool.store.contract import Filters, LoanRow, Place, UsageTable
from commonpool.store.sql.connection import Connection, Row, one_of
from commonpool.store.sql.numbers import PART, both, joined, split, summed, summed_pair, total
from commonpool.store.summary import NS_PER_DAY, PERCENTS, Keys, Quantiles, Query, Sums, day_label, hour_label, table

_HIGH = "milli_gpu_ns_high"
_COLUMNS = (*(name for name in UsageRecord.__struct_fields__ if name != "loans"), _HIGH)
_LOAN_COLUMNS = ("request_id", "attempt", "line", "lender", "borrower", "milli_gpu", "start_ns", "end_ns", "reason")
_BATCH = 1000  # records whose places are looked up at once: SQLite binds 32,766 values to a statement, at most

_NO_WAITS = "[]"
_encode_waits = msgspec.json.Encoder().encode
_decode_waits = msgspec.json.Decoder(tuple[Wait, ...]).decode
_FIELDS = UsageRecord.__struct_fields__
_USE_AT, _LOANS_AT, _WAITS_AT = map(_FIELDS.index, ("milli_gpu_ns", "loans", "waits"))
_TIMES = {"hour": (f"u.arrived_ns / {NS_PER_HOUR}", hour_label), "day": (f"u.arrived_ns / {NS_PER_DAY}", day_label)}
LOANS = "usage AS u JOIN loans AS l ON l.request_id = u.request_id AND l.attempt = u.attempt"
_LOAN_LENGTH = "(l.end_ns - l.start_ns)"
_WHOLE, _REST = f"l.milli_gpu * ({_LOAN_LENGTH} / {PART})", f"l.milli_gpu * ({_LOAN_LENGTH} % {PART})"
# Sums of GPU time: of attempts, and of loans, of which already one product may pass 64 bits.
USE = summed_pair("u.milli_gpu_ns")
LOAN_USE = both(f"{_WHOLE} + {_REST} / {PART}", f"{_REST} % {PART}")
_LAST_ATTEMPT = (
    "NOT EXISTS (SELECT 1 FROM usage AS later WHERE later.request_id = u.request_id AND later.attempt > u.attempt)"
)
_DISPATCHED = "u.milli_gpu > 0"
_WAIT = f"CASE WHEN {_DISPATCHED} THEN u.wait_ns ELSE 0 END"
_SUMMED = {  # field of Sums: what is summed
    "tokens_in": "u.tokens_in",
    "tokens_cached": "u.tokens_cached",
    "tokens_out": "u.tokens_out",
    "wait_ns_sum": _WAIT,
}


def add_usage(connection: Connection, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
    """See `UsageSink.add_usage`."""
    differing: list[UsageRecord] = []
    left = iter(records)
    while batch := list(islice(left, _BATCH)):
        ids = [record.request_id for record in batch]
        kept = {
            (each.request_id, each.attempt): each for each in select_records(connection, one_of("request_id", ids), ids)
        }
        new: list[UsageRecord] = []
        for record in batch:
            place = record.request_id, record.attempt
            if place not in kept:
                kept[place] = record
                new.append(record)
            elif _content(kept[place]) != _content(record):
                differing.append(record)
        connection.insert("usage", _COLUMNS, map(_values, new))
        connection.insert("loans", _LOAN_COLUMNS, (row for record in new for row in _loan_values(record)))
    return tuple(differing)


def usage(connection: Connection, question: Query) -> UsageTable:
    """The usage table that answers the question."""
    lines: dict[Keys, Sums] = {}
    _add_use(connection, question, lines)
    _add_loans(connection, question, lines, "u.tenant", "borrowed_milli_gpu_ns")
    if question.lenders:
        _add_loans(connection, question, lines, "l.lender", "lent_milli_gpu_ns")
    overall = _quantiles(connection, question, ()).get((), (None, None))
    return table(question, lines, _quantiles(connection, question, question.by) if question.by else {}, overall)


def loans(connection: Connection, since_ns: int, until_ns: int, tenants: Sequence[str] | None) -> tuple[LoanRow, ...]:
    """Who borrowed from whom."""
    own = tenants or ()
    party = "" if tenants is None else f" AND ({one_of('l.lender', own)} OR {one_of('l.borrower', own)})"
    rows = connection.query(
        f"SELECT l.lender, l.borrower, count(*), {LOAN_USE}, {summed(_LOAN_LENGTH)}, max({_LOAN_LENGTH})"  # noqa: S608 - no value is in it
        f" FROM {LOANS} WHERE u.arrived_ns >= ? AND u.arrived_ns < ?{party}"
        " GROUP BY l.lender, l.borrower ORDER BY l.lender, l.borrower",
        (since_ns, until_ns, *own, *own),
    )
    return tuple(
        LoanRow(
            lender,
            borrower,
            count,
            milli_gpu_ns=total(use_high, use_low),
            length_ns_mean=total(length_high, length_low) // count,
            length_ns_max=longest,
        )
        for lender, borrower, count, use_high, use_low, length_high, length_low, longest in rows
    )


def record(connection: Connection, request_id: str) -> tuple[UsageRecord, ...]:
    """All attempts at a request, with their loans."""
    return select_records(connection, "request_id = ? ORDER BY attempt", (request_id,))


def records(
    connection: Connection,
    since_ns: int,
    until_ns: int,
    after: Place | None,
    limit: int,
    filters: Filters,
    *,
    newest: bool,
) -> tuple[UsageRecord, ...]:
    """The first or last attempts of a period after a place, with their loans."""
    kept = "".join(f" AND {one_of(name, values)}" for name, values in filters.items())
    sign, way = ("<", " DESC") if newest else (">", "")
    first = (until_ns, "", 0) if newest else (-1, "", 0)
    return select_records(
        connection,
        f"arrived_ns >= ? AND arrived_ns < ? AND (arrived_ns, request_id, attempt) {sign} (?, ?, ?)"
        f"{kept} ORDER BY arrived_ns{way}, request_id{way}, attempt{way} LIMIT ?",
        (since_ns, until_ns, *(after or first), *(value for values in filters.values() for value in values), limit),
    )


def arrival(connection: Connection, since_ns: int, until_ns: int, number: int, *, newest: bool) -> int | None:
    """See `Store.arrival`: of the index alone."""
    rows = connection.query(
        f"SELECT arrived_ns FROM usage WHERE arrived_ns >= ? AND arrived_ns < ? ORDER BY arrived_ns"  # noqa: S608 - ours
        f"{' DESC' if newest else ''} LIMIT 1 OFFSET ?",
        (since_ns, until_ns, number - 1),
    )
    return rows[0][0] if rows else None


def before(connection: Connection, passage: Passage, longest_ns: int) -> dict[str, Before]:
    """See `Store.before`."""
    started = "(arrived_ns + wait_ns)"
    waiting = f"arrived_ns < ? AND {started} > ?"
    served = f"{_DISPATCHED} AND {started} > ? AND {started} <= ?"
    since, until = passage.since_ns, passage.until_ns
    rows = connection.query(
        f"SELECT tenant, {_count(waiting)}, {_count(served)} FROM usage AS u WHERE arrived_ns >= ? AND arrived_ns <= ?"  # noqa: S608 - values are bound
        f" AND model = ? AND request_id <> ? AND {started} > ? GROUP BY tenant",
        (since, since, since, until, since - longest_ns, until, passage.model, passage.request_id, since),
    )
    return {tenant: Before(were, got) for tenant, were, got in rows if were or got}


def select_records(connection: Connection, which: str, values: Sequence[Any]) -> tuple[UsageRecord, ...]:
    """The attempts that a WHERE clause finds, in its order, with their loans."""
    rows = connection.query(f"SELECT {', '.join(_COLUMNS)} FROM usage AS u WHERE {which}", values)  # noqa: S608 - names are ours
    lent: dict[tuple[str, int], list[Loan]] = {}
    for request_id, attempt, lender, borrower, milli_gpu, start_ns, end_ns, reason in (
        connection.query(
            "SELECT l.request_id, l.attempt, l.lender, l.borrower, l.milli_gpu, l.start_ns, l.end_ns, l.reason FROM"  # noqa: S608 - ours
            f" (SELECT u.request_id, u.attempt FROM usage AS u WHERE {which}) AS u"
            " JOIN loans AS l ON l.request_id = u.request_id AND l.attempt = u.attempt ORDER BY l.line",
            values,
        )
        if rows
        else ()
    ):
        loan = Loan(lender, borrower, request_id, milli_gpu, start_ns, end_ns, LoanEnd(reason))
        lent.setdefault((request_id, attempt), []).append(loan)
    return tuple(_record(row, lent) for row in rows)


def _values(record: UsageRecord) -> Row:
    """The values of _COLUMNS: all but the loans, which are rows of their own, the waits as text."""
    waits = _encode_waits(record.waits).decode() if record.waits else _NO_WAITS
    high, low = split(record.milli_gpu_ns)
    given = msgspec.structs.astuple(record)
    return *given[:_USE_AT], low, *given[_USE_AT + 1 : _LOANS_AT], waits, *given[_WAITS_AT + 1 :], high


def _loan_values(record: UsageRecord) -> list[Row]:
    """A row for each of the record's loans."""
    return [
        (
            record.request_id,
            record.attempt,
            line,
            loan.lender,
            loan.borrower,
            loan.milli_gpu,
            loan.start_ns,
            loan.end_ns,
            loan.reason,
        )
        for line, loan in enumerate(record.loans)
    ]


def _content(record: UsageRecord) -> tuple[Row, list[Row]]:
    """All that is kept of a record."""
    return _values(record), _loan_values(record)


def _record(row: Row, lent: dict[tuple[str, int], list[Loan]]) -> UsageRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["stream"] = bool(values["stream"])
    values["outcome"] = Outcome(values["outcome"])
    values["token_source"] = TokenSource(values["token_source"])
    values["waits"] = _decode_waits(values["waits"])
    values["milli_gpu_ns"] = joined(values.pop(_HIGH), values["milli_gpu_ns"])
    return UsageRecord(**values, loans=tuple(lent.get((values["request_id"], values["attempt"]), ())))


def _add_use(connection: Connection, question: Query, lines: dict[Keys, Sums]) -> None:
    """Grouped by price too: the product of use and price is made here, where it cannot overflow."""
    keys = _keys(question.by, "u.tenant")
    where, values = _where(question, "u.tenant")
    rows = connection.query(
        f"SELECT {_select(keys)} u.micro_per_gpu_hour, count(*), {_count(_LAST_ATTEMPT)}, {_count(_DISPATCHED)},"  # noqa: S608 - values are bound
        f" max({_WAIT}), {', '.join(map(summed, _SUMMED.values()))}, {USE}"
        f" FROM usage AS u WHERE {where} GROUP BY {_select(keys)} u.micro_per_gpu_hour",
        values,
    )
    for row in rows:
        price, attempts, requests, dispatched, wait_ns_max, *parts = row[len(keys) :]
        totals = dict(zip((*_SUMMED, "milli_gpu_ns"), map(total, parts[::2], parts[1::2]), strict=True))
        sums = Sums(requests=requests, attempts=attempts, dispatched=dispatched, wait_ns_max=wait_ns_max, **totals)
        sums.exact_cost = exact_cost(sums.milli_gpu_ns, price)
        lines.setdefault(_labels(question.by, row), Sums()).add(sums)


def _add_loans(connection: Connection, question: Query, lines: dict[Keys, Sums], tenant: str, field: str) -> None:
    """Adds loans to the lines of `tenant`: the borrower's column, or the lender's."""
    keys = _keys(question.by, tenant)
    where, values = _where(question, tenant)
    rows = connection.query(
        f"SELECT {_select(keys)} {LOAN_USE} FROM {LOANS} WHERE {where} AND {tenant} <> ''"  # noqa: S608 - values are bound
        + (f" GROUP BY {', '.join(keys)}" if keys else ""),
        values,
    )
    for row in rows:
        sums = lines.setdefault(_labels(question.by, row), Sums())
        setattr(sums, field, getattr(sums, field) + total(*row[len(keys) :]))


def _quantiles(connection: Connection, question: Query, by: tuple[str, ...]) -> dict[Keys, Quantiles]:
    """p50 and p99 of each line's waits, by nearest rank: the smallest wait that p % of the waits do not exceed."""
    keys = _keys(by, "u.tenant")
    names = [f"k{place}" for place in range(len(keys))]
    named = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    ranks = [f"(line_waits * {percent} + 99) / 100" for percent in PERCENTS]
    picks = [f"max(CASE WHEN rank = {rank} THEN wait_ns END)" for rank in ranks]
    where, values = _where(question, "u.tenant")
    rows = connection.query(
        f"SELECT {_select(names)} {', '.join(picks)} FROM ("  # noqa: S608 - values are bound
        f"SELECT {_select(named)} u.wait_ns, row_number() OVER ({partition} ORDER BY u.wait_ns) AS rank,"
        f" count(*) OVER ({partition}) AS line_waits FROM usage AS u WHERE {where} AND {_DISPATCHED}"
        f") AS waits WHERE rank IN ({', '.join(ranks)})" + (f" GROUP BY {', '.join(names)}" if names else ""),
        values,
    )
    return {_labels(by, row): (row[-2], row[-1]) for row in rows}


def _keys(by: tuple[str, ...], tenant: str) -> list[str]:
    """The expressions of the dimensions. They come from a fixed list, never from a caller."""
    return [_TIMES[name][0] if name in _TIMES else tenant if name == "tenant" else f"u.{name}" for name in by]


def _labels(by: tuple[str, ...], row: Row) -> Keys:
    return tuple(_TIMES[name][1](value) if name in _TIMES else value for name, value in zip(by, row, strict=False))


def _where(question: Query, tenant: str) -> tuple[str, list[Any]]:
    conditions = ["u.arrived_ns >= ?", "u.arrived_ns < ?"]
    values: list[Any] = [question.since_ns, question.until_ns]
    for name, allowed in question.filters.items():
        conditions.append(one_of(tenant if name == "tenant" else f"u.{name}", allowed))
        values.extend(allowed)
    return " AND ".join(conditions), values


def _select(names: list[str]) -> str:
    return "".join(f"{name}, " for name in names)


def _count(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"
