"""What an hour's books are made of, in SQL: attempts that lie wholly in it are added up there, the few others are cut.

An attempt ran from arrived_ns + total_ns - run_ns until arrived_ns + total_ns; the latter has an index.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from commonpool.core.ledger import Phase, Rates, Span, Standing, Use, Work
from commonpool.core.model import NS_PER_HOUR, UsageRecord
from commonpool.store.hour import BATCH, QUARTER_NS, TOKENS, HourBooks, began
from commonpool.store.ledger import HourWork, Part, Reading, Reconciliation
from commonpool.store.sql.connection import Connection, one_of
from commonpool.store.sql.numbers import summed, total
from commonpool.store.sql.usage import LOAN_USE, LOANS, USE, select_records

ENDED: Final = "(u.arrived_ns + u.total_ns)"  # as the index has it
_BEGAN: Final = "(u.arrived_ns + u.total_ns - u.run_ns)"
# Those that may outlast an hour, as their index has it: hours begin at quarters of hours (UTC).
_OVER: Final = f"{ENDED} / {QUARTER_NS} <> {_BEGAN} / {QUARTER_NS}"
# The index is of no use where nearly all have ended by then: the 0 keeps it out of the way.
_ENDED_BY: Final = "(u.arrived_ns + u.total_ns + 0)"
TYPE: Final = (
    f"CASE WHEN u.endpoint IN ({', '.join(map(repr, BATCH))}) THEN 'batch'"
    " WHEN u.stream = 1 THEN 'stream' ELSE 'sync' END"
)
# As core.pricing.is_charged says.
_CHARGED: Final = (
    "CASE WHEN u.micro_per_gpu_hour <> 0 OR u.outcome IN ('completed', 'cancelled', 'running') THEN 1 ELSE 0 END"
)
_WORK: Final = ", ".join(f"u.{name}" for name in Work.__struct_fields__)
_WIDTH: Final = len(Work.__struct_fields__)
# As core.settling.metered says, of sums.
_METERED: Final = {
    "request": "CASE WHEN u.outcome = 'completed' AND u.endpoint NOT IN ('job', 'replica') THEN 1 ELSE 0 END",
    "million_tokens_in": "u.tokens_in - u.tokens_cached",
    "million_tokens_cached": "u.tokens_cached",
    "million_tokens_out": "u.tokens_out",
    "network_gb": "u.bytes_in + u.bytes_out",
    "cpu_hour": "u.cpu_ns",
    "memory_gib_hour": "u.memory_mib_s",
    "gpu_memory_gib_hour": "u.gpu_memory_mib_s",
}
_UNITS: Final = {"cpu_hour": 1000}  # thousandths of a core: more than may fit where they are summed
_SOME = 500  # attempts whose parts are looked up at once

decode_record = msgspec.json.Decoder(UsageRecord).decode
decode_reading = msgspec.json.Decoder(Reading).decode
decode_reconciliation = msgspec.json.Decoder(Reconciliation).decode
_decode_use = msgspec.json.Decoder(Use).decode
_decode_guaranteed = msgspec.json.Decoder(dict[str, int]).decode


def hour_work(connection: Connection, pool: str, start_ns: int) -> HourWork:
    """See `LedgerStore.hour_work`."""
    end_ns = start_ns + NS_PER_HOUR
    in_hour = f"u.pool = ? AND {ENDED} > ? AND {ENDED} <= ?"
    rows = connection.query("SELECT seq FROM hours WHERE pool = ? ORDER BY hour_ns DESC LIMIT 1", (pool,))
    seq = rows[0][0] if rows else None  # the last one that was known then; None: no hour is closed

    # 1. Those that ended in the hour and began before it, and those that ended before it and are heard of only now.
    ended = select_records(connection, f"{in_hour} AND {_BEGAN} < ? AND {_OVER}", (pool, start_ns, end_ns, start_ns))
    late: tuple[UsageRecord, ...] = ()
    if seq is not None:
        late = select_records(connection, f"u.pool = ? AND u.seq > ? AND {_ENDED_BY} <= ?", (pool, seq, start_ns))
    since_ns = min(map(began, (*ended, *late)), default=start_ns)
    posted = _posted(connection, (*ended, *late))
    since_ns = min((since_ns, *(hour for each in posted.values() for hour in each)))
    books = HourBooks(pool, start_ns, _closed(connection, pool, since_ns, start_ns))
    for record in (*ended, *late):
        books.add_ended(record, posted.get((record.request_id, record.attempt), {}))
    for record in late:
        books.count_late(record)

    # 2. Those that lie wholly in it, added up.
    _add_whole(connection, books, f"{in_hour} AND {_BEGAN} >= ?", (pool, start_ns, end_ns, start_ns))

    # 3. Those that go on, whether they have ended meanwhile or not.
    going_on = f"u.pool = ? AND {ENDED} > ? AND {_BEGAN} < ? AND {_OVER}"
    for record in select_records(connection, going_on, (pool, end_ns, end_ns)):
        books.add_going_on(record)
    for record in _running(connection, pool):
        books.add_going_on(record)

    # 4. Counts of all that ended in it.
    _count(connection, books, in_hour, (pool, start_ns, end_ns))

    # 5. What was measured elsewhere.
    for text, posted_until_ns in connection.query(
        "SELECT reading, posted_until_ns FROM readings WHERE pool = ? AND start_ns < ? AND posted_until_ns < end_ns",
        (pool, end_ns),
    ):
        books.read(decode_reading(text), posted_until_ns)
    ((newest,),) = connection.query("SELECT coalesce(max(seq), 0) FROM usage")
    return books.work(
        standings(connection, "pool = ? AND start_ns >= ? AND start_ns < ?", (pool, start_ns, end_ns)),
        _spans(connection, pool, start_ns, end_ns),
        max(newest, seq or 0),
    )


def standings(connection: Connection, which: str, values: Sequence[Any]) -> list[Standing]:
    """The standings that a WHERE clause finds."""
    rows = connection.query(
        f"SELECT pool, start_ns, end_ns, milli_gpu, guaranteed FROM standings WHERE {which}",  # noqa: S608 - bound
        values,
    )
    return [
        Standing(pool, start_ns, end_ns, milli_gpu, _decode_guaranteed(guaranteed))
        for pool, start_ns, end_ns, milli_gpu, guaranteed in rows
    ]


def _closed(connection: Connection, pool: str, since_ns: int, until_ns: int) -> dict[int, Rates]:
    """The closed hours that have a part of this time, or end when it begins, and their rates."""
    rows = connection.query(
        "SELECT hour_ns, reconciliation FROM hours WHERE pool = ? AND hour_ns >= ? AND hour_ns < ? ORDER BY hour_ns",
        (pool, since_ns - NS_PER_HOUR, until_ns),
    )
    return {hour: decode_reconciliation(text).rates for hour, text in rows}


def _posted(connection: Connection, records: Sequence[UsageRecord]) -> dict[tuple[str, int], dict[int, Part]]:
    """The parts of these attempts that were posted, by hour."""
    found: dict[tuple[str, int], dict[int, Part]] = {}
    ids = sorted({record.request_id for record in records})
    for first in range(0, len(ids), _SOME):
        some = ids[first : first + _SOME]
        for request_id, attempt, hour_ns, until_ns, posted in connection.query(
            f"SELECT request_id, attempt, hour_ns, until_ns, posted FROM parts WHERE {one_of('request_id', some)}",  # noqa: S608 - bound
            some,
        ):
            part = Part(request_id, attempt, hour_ns, until_ns, _decode_use(posted))
            found.setdefault((request_id, attempt), {})[hour_ns] = part
    return found


def _running(connection: Connection, pool: str) -> list[UsageRecord]:
    """What runs. Of what has ended since it was saved there is a record."""
    rows = connection.query(
        "SELECT r.record FROM running AS r WHERE r.pool = ? AND NOT EXISTS (SELECT 1 FROM usage AS u"
        " WHERE u.request_id = r.request_id AND u.attempt = r.attempt) ORDER BY r.request_id, r.attempt",
        (pool,),
    )
    return [decode_record(text) for (text,) in rows]


def _add_whole(connection: Connection, books: HourBooks, which: str, values: Sequence[Any]) -> None:
    borrowed: dict[tuple[Work, bool], dict[str, int]] = {}
    for *work, charged, lender, high, low in connection.query(
        f"SELECT {_WORK}, {_CHARGED}, l.lender, {LOAN_USE} FROM {LOANS} WHERE {which}"  # noqa: S608 - values are bound
        f" GROUP BY {_WORK}, {_CHARGED}, l.lender",
        values,
    ):
        if amount := total(high, low):
            borrowed.setdefault((work_of_row(work), bool(charged)), {})[lender] = amount
    for *work, charged, high, low in connection.query(
        f"SELECT {_WORK}, {_CHARGED}, {USE} FROM usage AS u WHERE {which} AND u.milli_gpu > 0"  # noqa: S608 - bound
        f" GROUP BY {_WORK}, {_CHARGED}",
        values,
    ):
        key = work_of_row(work), bool(charged)
        if used := total(high, low):
            books.add_whole(Use(*key, used, borrowed.get(key, {})))


def _count(connection: Connection, books: HourBooks, which: str, values: Sequence[Any]) -> None:
    sums = ", ".join(
        (
            "sum(CASE WHEN u.attempt <= 1 THEN 1 ELSE 0 END)",
            "sum(CASE WHEN u.outcome = 'completed' THEN 1 ELSE 0 END)",
            "count(*)",
            *(summed(f"u.{name}") for name in TOKENS),
            *map(summed, _METERED.values()),
        )
    )
    for row in connection.query(
        f"SELECT {_WORK}, {_CHARGED}, {sums} FROM usage AS u WHERE {which} GROUP BY {_WORK}, {_CHARGED}",  # noqa: S608 - bound
        values,
    ):
        charged, requests, completed, attempts, *numbers = row[_WIDTH:]
        totals = list(map(total, numbers[::2], numbers[1::2]))
        metered = dict(zip(_METERED, totals[len(TOKENS) :], strict=True)) if charged else {}
        for meter, units in _UNITS.items():
            if meter in metered:
                metered[meter] *= units
        books.count(work_of_row(row[:_WIDTH]), (requests, completed, attempts, *totals[: len(TOKENS)]), metered)


def _spans(connection: Connection, pool: str, start_ns: int, end_ns: int) -> list[Span]:
    rows = connection.query(
        "SELECT id, phase, pool, model, account, milli_gpu, start_ns, end_ns FROM spans"
        " WHERE pool = ? AND start_ns >= ? AND start_ns < ?",
        (pool, start_ns, end_ns),
    )
    return [Span(id_, Phase(phase), *rest) for id_, phase, *rest in rows]


def work_of_row(values: Sequence[Any]) -> Work:
    """The work that was selected as the fields of `Work`, in order."""
    tenant, app, cost_center, model, version, tier, endpoint, stream = values
    return Work(tenant, app, cost_center, model, version, tier, endpoint, bool(stream))
