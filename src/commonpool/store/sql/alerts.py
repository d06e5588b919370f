"""Alerts in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from commonpool.core.telling import Key, Silence
from commonpool.store.alerts import KeptEpisode
from commonpool.store.sql.connection import Connection

_decode: Final = msgspec.json.Decoder(KeptEpisode).decode


def save_alerts(connection: Connection, kept: Iterable[KeptEpisode], forgotten: Collection[Key]) -> None:
    """See `AlertStore.save_alerts`."""
    for each in kept:
        connection.run(
            "INSERT INTO alerts (alert, fired_ns, content) VALUES (?, ?, ?)"
            " ON CONFLICT (alert, fired_ns) DO UPDATE SET content = excluded.content",
            (*each.episode.key, msgspec.json.encode(each).decode()),
        )
    for key in forgotten:
        connection.run("DELETE FROM alerts WHERE alert = ? AND fired_ns = ?", key)


def alerts(connection: Connection) -> tuple[KeptEpisode, ...]:
    """See `AlertStore.alerts`."""
    rows = connection.query("SELECT content FROM alerts ORDER BY alert, fired_ns")
    return tuple(_decode(content) for (content,) in rows)


def save_silence(connection: Connection, silence: Silence) -> None:
    """See `AlertStore.save_silence`."""
    connection.run(
        "INSERT INTO silences (alert, tenant, until_ns, silenced_by) VALUES (?, ?, ?, ?) ON CONFLICT (alert, tenant)"
        " DO UPDATE SET until_ns = excluded.until_ns, silenced_by = excluded.silenced_by",
        (silence.alert, silence.tenant, silence.until_ns, silence.by),
    )


def silences(connection: Connection) -> tuple[Silence, ...]:
    """See `AlertStore.silences`."""
    rows = connection.query("SELECT alert, tenant, until_ns, silenced_by FROM silences ORDER BY alert, tenant")
    return tuple(Silence(*row) for row in rows)


def drop_silence(connection: Connection, alert: str, tenant: str) -> None:
    """See `AlertStore.drop_silence`."""
    connection.run("DELETE FROM silences WHERE alert = ? AND tenant = ?", (alert, tenant))


def drop_silences(connection: Connection, until_ns: int) -> None:
    """See `AlertStore.drop_silences`."""
    connection.run("DELETE FROM silences WHERE until_ns <= ?", (until_ns,))
