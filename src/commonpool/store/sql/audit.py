"""The audit log in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from commonpool.store.audit import EMPTY, AuditEntry, Head, chained
from commonpool.store.sql.connection import Connection, Row, one_of

_COLUMNS: Final = AuditEntry.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM audit"  # noqa: S608 - names are ours
_LAST: Final = 2**63 - 1
_decode_policies = msgspec.json.Decoder(tuple[str, ...]).decode


def add_audit(connection: Connection, entries: Sequence[AuditEntry]) -> Head:
    """See `AuditStore.add_audit`."""
    kept = tuple(chained(entries, audit_head(connection)))
    connection.insert("audit", _COLUMNS, map(_values, kept))
    return kept[-1].head if kept else audit_head(connection)


def audit_head(connection: Connection) -> Head:
    """See `AuditStore.audit_head`."""
    rows = connection.query("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1")
    return Head(rows[0][0], bytes(rows[0][1])) if rows else EMPTY


def audit(
    connection: Connection,
    filters: Mapping[str, Sequence[str]],
    since_ns: int,
    until_ns: int,
    before: int | None,
    limit: int,
) -> tuple[AuditEntry, ...]:
    """See `AuditStore.audit`."""
    conditions = ["at_ns >= ?", "at_ns < ?", "number < ?", *(one_of(name, values) for name, values in filters.items())]
    values: list[Any] = [since_ns, until_ns, _LAST if before is None else before]
    values += [value for allowed in filters.values() for value in allowed]
    where = " AND ".join(conditions)
    return tuple(
        map(_entry, connection.query(f"{_SELECT} WHERE {where} ORDER BY number DESC LIMIT ?", (*values, limit)))
    )


def audit_chain(connection: Connection, after: int, limit: int) -> tuple[AuditEntry, ...]:
    """See `AuditStore.audit_chain`."""
    rows = connection.query(f"{_SELECT} WHERE number > ? ORDER BY number LIMIT ?", (after, limit))
    return tuple(map(_entry, rows))


def _values(entry: AuditEntry) -> Row:
    values = msgspec.structs.asdict(entry)
    return tuple((values | {"policies": msgspec.json.encode(entry.policies).decode()}).values())


def _entry(row: Row) -> AuditEntry:
    values = dict(zip(_COLUMNS, row, strict=True))
    return AuditEntry(**values | {"policies": _decode_policies(values["policies"]), "hash": bytes(values["hash"])})
