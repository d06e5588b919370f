"""Applied configurations in SQL: each of these runs on one connection, inside a transaction of the store's."""

import msgspec

from commonpool.store.contract import ConfigRevision, StoreError
from commonpool.store.sql.connection import Connection

_decode_sources = msgspec.json.Decoder(dict[str, str]).decode


def add_config(connection: Connection, config: ConfigRevision) -> None:
    """See `Store.add_config`."""
    sources = msgspec.json.encode(config.sources).decode()
    added = connection.run(
        "INSERT INTO config_history (revision, applied_ns, sources) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (config.revision, config.applied_ns, sources),
    )
    if not added:
        raise StoreError(f"Revision {config.revision} of the configuration is already kept.")


def configs(connection: Connection, limit: int) -> tuple[ConfigRevision, ...]:
    """See `Store.configs`."""
    rows = connection.query(
        "SELECT revision, applied_ns, sources FROM config_history ORDER BY revision DESC LIMIT ?", (limit,)
    )
    return tuple(ConfigRevision(revision, applied_ns, _decode_sources(text)) for revision, applied_ns, text in rows)
