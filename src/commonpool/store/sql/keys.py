"""Keys in SQL: each of these runs on one connection, inside a transaction of the store's."""

from typing import Final

import msgspec

from commonpool.core.model import Limits
from commonpool.store.contract import Key, KeyNotFoundError, StoreError
from commonpool.store.sql.connection import Connection, Row, placeholders

_COLUMNS = ", ".join(Key.__struct_fields__)
_AS_JSON: Final = {"models": tuple[str, ...], "tiers": tuple[str, ...], "networks": tuple[str, ...], "limits": Limits}


def add_key(connection: Connection, key: Key) -> None:
    """See `Store.add_key`."""
    values = msgspec.structs.asdict(key)
    for name in _AS_JSON:
        values[name] = None if values[name] is None else msgspec.json.encode(values[name]).decode()
    insert = f"INSERT INTO keys ({_COLUMNS}) VALUES ({placeholders(values)}) ON CONFLICT DO NOTHING"  # noqa: S608 - ours
    if not connection.run(insert, tuple(values.values())):
        raise StoreError(f"A key with the id {key.key_id!r} exists already; create it again under another id.")


def list_keys(connection: Connection) -> tuple[Key, ...]:
    """See `Store.list_keys`."""
    return tuple(map(_key, connection.query(f"SELECT {_COLUMNS} FROM keys ORDER BY created_ns, key_id")))  # noqa: S608 - ours


def revoke_key(connection: Connection, key_id: str, at_ns: int) -> Key:
    """See `Store.revoke_key`."""
    connection.run("UPDATE keys SET revoked_ns = coalesce(revoked_ns, ?) WHERE key_id = ?", (at_ns, key_id))
    return _find(connection, key_id)


def rotate_key(connection: Connection, key_id: str, successor: Key, until_ns: int) -> Key:
    """See `Store.rotate_key`."""
    ends = "CASE WHEN expires_ns < ? THEN expires_ns ELSE ? END"
    live = f"UPDATE keys SET expires_ns = {ends} WHERE key_id = ? AND revoked_ns IS NULL"  # noqa: S608 - ours
    changed = connection.run(live, (until_ns, until_ns, key_id))
    old = _find(connection, key_id)
    if not changed:
        raise KeyNotFoundError.not_live(key_id)
    add_key(connection, successor)
    return old


def _find(connection: Connection, key_id: str) -> Key:
    for row in connection.query(f"SELECT {_COLUMNS} FROM keys WHERE key_id = ?", (key_id,)):  # noqa: S608 - ours
        return _key(row)
    raise KeyNotFoundError(f"There is no key with the id {key_id!r}; `commonpool keys list` shows those there are.")


def _key(row: Row) -> Key:
    values = dict(zip(Key.__struct_fields__, row, strict=True))
    for name, kind in _AS_JSON.items():
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name], type=kind)
    return Key(**values)
