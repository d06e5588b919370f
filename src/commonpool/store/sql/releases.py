"""Releases and demand in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Iterable, Sequence

import msgspec

from commonpool.core.underuse import Demand
from commonpool.store.releases import Release
from commonpool.store.sql.connection import Connection, one_of, placeholders

_COLUMNS = ", ".join(Release.__struct_fields__)
_GIVEN = tuple(name for name in Release.__struct_fields__ if name != "number")  # the database numbers them
_decode_peaks = msgspec.json.Decoder(tuple[int, ...]).decode


def add_release(connection: Connection, release: Release) -> Release:
    """See `ReleaseStore.add_release`."""
    ((number,),) = connection.query(
        f"INSERT INTO releases ({', '.join(_GIVEN)}) VALUES ({placeholders(_GIVEN)}) RETURNING number",  # noqa: S608 - names are ours
        tuple(getattr(release, name) for name in _GIVEN),
    )
    return msgspec.structs.replace(release, number=number)


def undo_releases(connection: Connection, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
    """See `ReleaseStore.undo_releases`."""
    rows = connection.query(
        f"UPDATE releases SET undone_ns = ?, undone_by = ? WHERE tenant = ? AND undone_ns IS NULL RETURNING {_COLUMNS}",  # noqa: S608 - ours
        (at_ns, by, tenant),
    )
    return tuple(sorted((Release(*row) for row in rows), key=lambda release: release.number))


def releases(connection: Connection, limit: int, tenants: Sequence[str] | None) -> tuple[Release, ...]:
    """See `ReleaseStore.releases`."""
    where = "" if tenants is None else f" WHERE {one_of('tenant', tenants)}"
    rows = connection.query(
        f"SELECT {_COLUMNS} FROM releases{where} ORDER BY number DESC LIMIT ?",  # noqa: S608 - ours
        (*(tenants or ()), limit),
    )
    return tuple(Release(*row) for row in rows)


def released(connection: Connection) -> dict[str, int]:
    """See `ReleaseStore.released`."""
    return dict(
        connection.query(
            "SELECT tenant, sum(milli_gpu) FROM releases WHERE undone_ns IS NULL GROUP BY tenant ORDER BY tenant"
        )
    )


def save_demand(connection: Connection, demands: Iterable[Demand]) -> None:
    """See `ReleaseStore.save_demand`."""
    connection.run("DELETE FROM demand")
    connection.insert(
        "demand",
        ("tenant", "first_hour", "peaks"),
        ((each.tenant, each.first_hour, msgspec.json.encode(each.peaks).decode()) for each in demands),
    )


def demand(connection: Connection) -> tuple[Demand, ...]:
    """See `ReleaseStore.demand`."""
    rows = connection.query("SELECT tenant, first_hour, peaks FROM demand ORDER BY tenant")
    return tuple(Demand(tenant, first_hour, _decode_peaks(peaks)) for tenant, first_hour, peaks in rows)
