"""Releases and demand in SQLite: each of these runs on one connection, inside a transaction of the store's."""

import sqlite3
from collections.abc import Iterable

import msgspec

from commonpool.core.underuse import Demand
from commonpool.store.releases import Release

_COLUMNS = ", ".join(Release.__struct_fields__)
_decode_peaks = msgspec.json.Decoder(tuple[int, ...]).decode


def add_release(connection: sqlite3.Connection, release: Release) -> Release:
    """See `ReleaseStore.add_release`."""
    values = msgspec.structs.asdict(release) | {"number": None}  # SQLite gives it the next one
    number = connection.execute(
        f"INSERT INTO releases ({_COLUMNS}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608 - names are ours
        tuple(values.values()),
    ).lastrowid
    return msgspec.structs.replace(release, number=number or 0)


def undo_releases(connection: sqlite3.Connection, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
    """See `ReleaseStore.undo_releases`."""
    rows = connection.execute(
        f"UPDATE releases SET undone_ns = ?, undone_by = ? WHERE tenant = ? AND undone_ns IS NULL RETURNING {_COLUMNS}",  # noqa: S608 - ours
        (at_ns, by, tenant),
    ).fetchall()
    return tuple(sorted((Release(*row) for row in rows), key=lambda release: release.number))


def releases(connection: sqlite3.Connection, limit: int) -> tuple[Release, ...]:
    """See `ReleaseStore.releases`."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM releases ORDER BY number DESC LIMIT ?", (limit,))  # noqa: S608 - ours
    return tuple(Release(*row) for row in rows)


def released(connection: sqlite3.Connection) -> dict[str, int]:
    """See `ReleaseStore.released`."""
    return dict(
        connection.execute(
            "SELECT tenant, sum(milli_gpu) FROM releases WHERE undone_ns IS NULL GROUP BY tenant ORDER BY tenant"
        )
    )


def save_demand(connection: sqlite3.Connection, demands: Iterable[Demand]) -> None:
    """See `ReleaseStore.save_demand`."""
    connection.execute("DELETE FROM demand")
    connection.executemany(
        "INSERT INTO demand (tenant, first_hour, peaks) VALUES (?, ?, ?)",
        ((each.tenant, each.first_hour, msgspec.json.encode(each.peaks).decode()) for each in demands),
    )


def demand(connection: sqlite3.Connection) -> tuple[Demand, ...]:
    """See `ReleaseStore.demand`."""
    rows = connection.execute("SELECT tenant, first_hour, peaks FROM demand ORDER BY tenant")
    return tuple(Demand(tenant, first_hour, _decode_peaks(peaks)) for tenant, first_hour, peaks in rows)
