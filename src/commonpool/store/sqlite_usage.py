"""Questions about usage in SQL. Each is asked on one connection inside a transaction, so its parts agree.

Sums are of the parts x / 10^9 and x % 10^9, joined in Python: a sum of nanoseconds times thousandths of a GPU passes
64 bits after 2,500 GPU-hours. One record may pass them too: its use is kept in two columns.
"""

import sqlite3
from typing import Any

import msgspec

from commonpool.core.model import NS_PER_HOUR, Loan, LoanEnd, Outcome, TokenSource, UsageRecord, Wait
from commonpool.core.pricing import exact_cost
from commonpool.store.contract import LoanRow, Place, UsageTable
from commonpool.store.summary import NS_PER_DAY, PERCENTS, Keys, Quantiles, Query, Sums, day_label, hour_label, table

_HIGH = "milli_gpu_ns_high"
COLUMNS = (*(name for name in UsageRecord.__struct_fields__ if name != "loans"), _HIGH)

_NO_WAITS = "[]"
_encode_waits = msgspec.json.Encoder().encode
_decode_waits = msgspec.json.Decoder(tuple[Wait, ...]).decode
_PART = 1_000_000_000
_HIGH_UNIT = _PART * _PART  # of milli_gpu_ns_high; what is below it is in milli_gpu_ns
_USE_AT = COLUMNS.index("milli_gpu_ns")
_TIMES = {"hour": (f"u.arrived_ns / {NS_PER_HOUR}", hour_label), "day": (f"u.arrived_ns / {NS_PER_DAY}", day_label)}
_LOANS = "usage AS u JOIN loans AS l ON l.request_id = u.request_id AND l.attempt = u.attempt"
_LOAN_LENGTH = "(l.end_ns - l.start_ns)"
_LAST_ATTEMPT = (
    "NOT EXISTS (SELECT 1 FROM usage AS later WHERE later.request_id = u.request_id AND later.attempt > u.attempt)"
)
_DISPATCHED = "u.milli_gpu > 0"
_SUMMED = {  # field of Sums: what is summed
    "tokens_in": "u.tokens_in",
    "tokens_cached": "u.tokens_cached",
    "tokens_out": "u.tokens_out",
    "wait_ns_sum": f"u.wait_ns * ({_DISPATCHED})",
}


def values(record: UsageRecord) -> tuple[Any, ...]:
    """The values of COLUMNS: all before the loans, which are rows of their own, then the waits as text."""
    waits = _encode_waits(record.waits).decode() if record.waits else _NO_WAITS
    high, low = divmod(record.milli_gpu_ns, _HIGH_UNIT)
    given = msgspec.structs.astuple(record)[:-2]
    return *given[:_USE_AT], low, *given[_USE_AT + 1 :], waits, high


def usage(connection: sqlite3.Connection, question: Query) -> UsageTable:
    """The usage table that answers the question."""
    lines: dict[Keys, Sums] = {}
    _add_use(connection, question, lines)
    _add_loans(connection, question, lines, "u.tenant", "borrowed_milli_gpu_ns")
    if question.lenders:
        _add_loans(connection, question, lines, "l.lender", "lent_milli_gpu_ns")
    overall = _quantiles(connection, question, ()).get((), (None, None))
    return table(question, lines, _quantiles(connection, question, question.by) if question.by else {}, overall)


def loans(connection: sqlite3.Connection, since_ns: int, until_ns: int) -> tuple[LoanRow, ...]:
    """Who borrowed from whom."""
    rows = connection.execute(
        f"SELECT l.lender, l.borrower, count(*), {_loan_use()}, {_parts(_LOAN_LENGTH)}, max({_LOAN_LENGTH})"  # noqa: S608 - no value is in it
        f" FROM {_LOANS} WHERE u.arrived_ns >= ? AND u.arrived_ns < ?"
        " GROUP BY l.lender, l.borrower ORDER BY l.lender, l.borrower",
        (since_ns, until_ns),
    )
    return tuple(
        LoanRow(
            lender,
            borrower,
            count,
            milli_gpu_ns=_join(use_high, use_low),
            length_ns_mean=_join(length_high, length_low) // count,
            length_ns_max=longest,
        )
        for lender, borrower, count, use_high, use_low, length_high, length_low, longest in rows
    )


def record(connection: sqlite3.Connection, request_id: str) -> tuple[UsageRecord, ...]:
    """All attempts at a request, with their loans."""
    return _records(connection, "request_id = ? ORDER BY attempt", (request_id,))


def records(
    connection: sqlite3.Connection, since_ns: int, until_ns: int, after: Place | None, limit: int
) -> tuple[UsageRecord, ...]:
    """The first attempts of a period after a place, with their loans."""
    return _records(
        connection,
        "arrived_ns >= ? AND arrived_ns < ? AND (arrived_ns, request_id, attempt) > (?, ?, ?)"
        " ORDER BY arrived_ns, request_id, attempt LIMIT ?",
        (since_ns, until_ns, *(after or (-1, "", 0)), limit),
    )


def _records(connection: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> tuple[UsageRecord, ...]:
    rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM usage WHERE {which}", values).fetchall()  # noqa: S608 - names are ours
    lent: dict[tuple[str, int], list[Loan]] = {}
    for request_id, attempt, lender, borrower, milli_gpu, start_ns, end_ns, reason in connection.execute(
        "SELECT request_id, attempt, lender, borrower, milli_gpu, start_ns, end_ns, reason FROM loans"
        " WHERE request_id IN (SELECT value FROM json_each(?)) ORDER BY request_id, attempt, line",
        (msgspec.json.encode([row[0] for row in rows]).decode(),),
    ):
        loan = Loan(lender, borrower, request_id, milli_gpu, start_ns, end_ns, LoanEnd(reason))
        lent.setdefault((request_id, attempt), []).append(loan)
    return tuple(_record(row, lent) for row in rows)


def _record(row: tuple[Any, ...], lent: dict[tuple[str, int], list[Loan]]) -> UsageRecord:
    values = dict(zip(COLUMNS, row, strict=True))
    values["stream"] = bool(values["stream"])
    values["outcome"] = Outcome(values["outcome"])
    values["token_source"] = TokenSource(values["token_source"])
    values["waits"] = _decode_waits(values["waits"])
    values["milli_gpu_ns"] += values.pop(_HIGH) * _HIGH_UNIT
    return UsageRecord(**values, loans=tuple(lent.get((values["request_id"], values["attempt"]), ())))


def _add_use(connection: sqlite3.Connection, question: Query, lines: dict[Keys, Sums]) -> None:
    """Grouped by price too: the product of use and price is made here, where it cannot overflow."""
    keys = _keys(question.by, "u.tenant")
    where, values = _where(question, "u.tenant")
    rows = connection.execute(
        f"SELECT {_select(keys)} u.micro_per_gpu_hour, count(*), sum({_LAST_ATTEMPT}), sum({_DISPATCHED}),"  # noqa: S608 - values are bound
        f" max(u.wait_ns * ({_DISPATCHED})), {', '.join(map(_parts, _SUMMED.values()))}, {_use()}"
        f" FROM usage AS u WHERE {where} GROUP BY {_select(keys)} u.micro_per_gpu_hour",
        values,
    )
    for row in rows:
        price, attempts, requests, dispatched, wait_ns_max, *parts = row[len(keys) :]
        totals = dict(zip((*_SUMMED, "milli_gpu_ns"), map(_join, parts[::2], parts[1::2]), strict=True))
        sums = Sums(requests=requests, attempts=attempts, dispatched=dispatched, wait_ns_max=wait_ns_max, **totals)
        sums.exact_cost = exact_cost(sums.milli_gpu_ns, price)
        lines.setdefault(_labels(question.by, row), Sums()).add(sums)


def _add_loans(
    connection: sqlite3.Connection, question: Query, lines: dict[Keys, Sums], tenant: str, field: str
) -> None:
    """Adds loans to the lines of `tenant`: the borrower's column, or the lender's."""
    keys = _keys(question.by, tenant)
    where, values = _where(question, tenant)
    rows = connection.execute(
        f"SELECT {_select(keys)} {_loan_use()} FROM {_LOANS} WHERE {where} AND {tenant} <> ''"  # noqa: S608 - values are bound
        + (f" GROUP BY {', '.join(keys)}" if keys else ""),
        values,
    )
    for row in rows:
        sums = lines.setdefault(_labels(question.by, row), Sums())
        setattr(sums, field, getattr(sums, field) + _join(*row[len(keys) :]))


def _quantiles(connection: sqlite3.Connection, question: Query, by: tuple[str, ...]) -> dict[Keys, Quantiles]:
    """p50 and p99 of each line's waits, by nearest rank: the smallest wait that p % of the waits do not exceed."""
    keys = _keys(by, "u.tenant")
    names = [f"k{place}" for place in range(len(keys))]
    named = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    ranks = [f"(line_waits * {percent} + 99) / 100" for percent in PERCENTS]
    picks = [f"max(CASE WHEN rank = {rank} THEN wait_ns END)" for rank in ranks]
    where, values = _where(question, "u.tenant")
    rows = connection.execute(
        f"SELECT {_select(names)} {', '.join(picks)} FROM ("  # noqa: S608 - values are bound
        f"SELECT {_select(named)} u.wait_ns, row_number() OVER ({partition} ORDER BY u.wait_ns) AS rank,"
        f" count(*) OVER ({partition}) AS line_waits FROM usage AS u WHERE {where} AND {_DISPATCHED})"
        f" WHERE rank IN ({', '.join(ranks)})" + (f" GROUP BY {', '.join(names)}" if names else ""),
        values,
    )
    return {_labels(by, row): (row[-2], row[-1]) for row in rows}


def _keys(by: tuple[str, ...], tenant: str) -> list[str]:
    """The expressions of the dimensions. They come from a fixed list, never from a caller."""
    return [_TIMES[name][0] if name in _TIMES else tenant if name == "tenant" else f"u.{name}" for name in by]


def _labels(by: tuple[str, ...], row: tuple[Any, ...]) -> Keys:
    return tuple(_TIMES[name][1](value) if name in _TIMES else value for name, value in zip(by, row, strict=False))


def _where(question: Query, tenant: str) -> tuple[str, list[Any]]:
    conditions = ["u.arrived_ns >= ?", "u.arrived_ns < ?"]
    values: list[Any] = [question.since_ns, question.until_ns]
    for name, allowed in question.filters.items():
        conditions.append(f"{tenant if name == 'tenant' else f'u.{name}'} IN ({', '.join('?' * len(allowed))})")
        values.extend(allowed)
    return " AND ".join(conditions), values


def _select(names: list[str]) -> str:
    return "".join(f"{name}, " for name in names)


def _parts(expression: str) -> str:
    return _sums(f"({expression}) / {_PART}", f"({expression}) % {_PART}")


def _use() -> str:
    """The parts of what was used, which is in two columns."""
    return _sums(f"u.{_HIGH} * {_PART} + u.milli_gpu_ns / {_PART}", f"u.milli_gpu_ns % {_PART}")


def _loan_use() -> str:
    """The parts of `milli_gpu × length`, of which already one product may pass 64 bits."""
    whole, rest = f"l.milli_gpu * ({_LOAN_LENGTH} / {_PART})", f"l.milli_gpu * ({_LOAN_LENGTH} % {_PART})"
    return _sums(f"{whole} + {rest} / {_PART}", f"{rest} % {_PART}")


def _sums(high: str, low: str) -> str:
    return f"coalesce(sum({high}), 0), coalesce(sum({low}), 0)"


def _join(high: int, low: int) -> int:
    return high * _PART + low
