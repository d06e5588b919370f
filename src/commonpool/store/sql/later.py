"""What is answered later in SQL: each of these runs on one connection, inside a transaction of the store's."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from commonpool.core.model import Request
from commonpool.store.later import LaterHead, SealedLater
from commonpool.store.sql.connection import Connection

_HEAD: Final = LaterHead.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_HEAD)}"

_decode: Final = msgspec.json.Decoder(Request).decode

log = structlog.get_logger()


def laters(connection: Connection) -> tuple[LaterHead, ...]:
    """See `LaterStore.laters`."""
    heads = []
    for *row, id_ in connection.query(f"{_SELECT}, id FROM later ORDER BY taken_ns, id"):
        try:
            heads.append(_head(row))
        except msgspec.MsgspecError as error:  # as another version wrote it, perhaps: the others are none the worse
            log.warning("what is kept for later cannot be read", id=id_, error=str(error))
    return tuple(heads)


def later(connection: Connection, id_: str) -> SealedLater | None:
    """See `LaterStore.later`."""
    rows = connection.query(f"{_SELECT}, sealed FROM later WHERE id = ?", (id_,))
    return SealedLater(_head(rows[0][:-1]), bytes(rows[0][-1])) if rows else None


def add_later(connection: Connection, entry: SealedLater) -> None:
    """See `LaterStore.add_later`."""
    head = entry.head
    request = msgspec.json.encode(head.request).decode()
    rest = (request, head.taken_ns, head.until_ns, head.status, head.size, entry.sealed)
    connection.insert("later", ("id", "tenant", *_HEAD, "sealed"), [(head.id, head.request.tenant, *rest)])


def end_later(connection: Connection, entry: SealedLater) -> bool:
    """See `LaterStore.end_later`."""
    head = entry.head
    sql = "UPDATE later SET until_ns = ?, status = ?, size = ?, sealed = ? WHERE id = ? AND status = 0"
    return connection.run(sql, (head.until_ns, head.status, head.size, entry.sealed, head.id)) > 0


def delete_later(connection: Connection, id_: str) -> bool:
    """See `LaterStore.delete_later`."""
    return connection.run("DELETE FROM later WHERE id = ?", (id_,)) > 0


def _head(row: Sequence[Any]) -> LaterHead:
    request, *rest = row
    return LaterHead(_decode(request), *rest)
