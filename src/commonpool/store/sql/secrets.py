"""Data keys in SQL: each of these runs on one connection, inside a transaction of the store's."""

from typing import Final

from commonpool.store.secrets import DataKey
from commonpool.store.sql.connection import Connection, Row

_COLUMNS: Final = DataKey.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM data_keys"  # noqa: S608 - names are ours


def data_keys(connection: Connection) -> tuple[DataKey, ...]:
    """See `SecretStore.data_keys`."""
    return tuple(map(_key, connection.query(f"{_SELECT} ORDER BY tenant")))


def data_key(connection: Connection, tenant: str) -> DataKey | None:
    """See `SecretStore.data_key`."""
    rows = connection.query(f"{_SELECT} WHERE tenant = ?", (tenant,))
    return _key(rows[0]) if rows else None


def add_data_key(connection: Connection, key: DataKey) -> DataKey:
    """See `SecretStore.add_data_key`."""
    connection.run(
        "INSERT INTO data_keys (tenant, created_ns, master, wrapped) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (key.tenant, key.created_ns, key.master, key.wrapped),
    )
    return data_key(connection, key.tenant) or key


def rewrap_data_key(connection: Connection, old: DataKey, new: DataKey) -> bool:
    """See `SecretStore.rewrap_data_key`."""
    return bool(
        connection.run(
            "UPDATE data_keys SET master = ?, wrapped = ? WHERE tenant = ? AND master = ? AND wrapped = ?",
            (new.master, new.wrapped, old.tenant, old.master, old.wrapped),
        )
    )


def forget_data_key(connection: Connection, tenant: str) -> None:
    """See `SecretStore.forget_data_key`."""
    connection.run("DELETE FROM data_keys WHERE tenant = ?", (tenant,))


def _key(row: Row) -> DataKey:
    tenant, created_ns, master, wrapped = row
    return DataKey(tenant, created_ns, master, bytes(wrapped))
