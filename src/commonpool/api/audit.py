"""The audit log: read, and verified from its first entry on."""

from typing import Annotated

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint
from commonpool.api.named import check_named
from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.places import no_place, number
from commonpool.api.subjects import ACROSS, PLATFORM, Who
from commonpool.api.usage import Period, between
from commonpool.api.wire import audit as wire
from commonpool.store.audit import EMPTY, FILTERABLE, AuditEntry, Head

ENTRIES_MAX = 1000  # in one answer


class AuditQuery(Period, frozen=True):
    """Each keeps what has one of its values, and may be repeated. `after` is that of the answer before, "" for none."""

    caller: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    limit: Annotated[int, msgspec.Meta(ge=1, le=ENTRIES_MAX)] = ENTRIES_MAX
    after: str = ""


class VerifyQuery(msgspec.Struct, frozen=True):
    """`head` is one that was kept, and may be repeated: `NUMBER:HASH`. `after` is where the verdict before ended."""

    head: tuple[str, ...] = ()
    after: str = ""


async def entries(operations: Operations, query: AuditQuery, who: Who) -> wire.AuditEntries:
    since_ns, until_ns = between(operations, query)
    until_ns += query.until_ns is None  # what was just now, too
    filters = {name: getattr(query, name) for name in FILTERABLE if getattr(query, name)}
    found = await operations.audited(who.scope.filters(filters), since_ns, until_ns, _before(query.after), query.limit)
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(found or query.after))
    after = str(found[-1].number) if len(found) == query.limit else None
    return wire.AuditEntries(tuple(map(_shown, found)), after)


async def verify(operations: Operations, query: VerifyQuery, _: Who) -> wire.AuditVerdict:
    start = _head(query.after, "after") if query.after else EMPTY
    found = await operations.audit().verify(start, [_head(head, "head") for head in query.head])
    return wire.AuditVerdict(not found.faults, str(found.head), found.faults, found.more)


def _before(after: str) -> int | None:
    if not after:
        return None
    if (found := number(after)) is None:
        raise no_place(after)
    return found


def _head(text: str, param: str) -> Head:
    try:
        return Head.parse(text)
    except ValueError:
        message = f"{param} {text!r} is not what `commonpool audit verify` printed: a number, a colon and 64 digits"
        raise BadRequestError(message, param=param) from None


def _shown(entry: AuditEntry) -> wire.AuditEntry:
    fields = {name: getattr(entry, name) for name in wire.AuditEntry.__struct_fields__}
    return wire.AuditEntry(**fields | {"hash": entry.hash.hex()})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/audit",
        entries,
        Permission.READ_AUDIT,
        ACROSS,
        "Who was allowed or denied what, the newest first, in pages",
        wire.AuditEntries,
        AuditQuery,
    ),
    Endpoint(
        "GET",
        "/admin/v1/audit/verify",
        verify,
        Permission.READ_AUDIT,
        PLATFORM,
        "Whether the log is as it was written, in steps from its first entry on",
        wire.AuditVerdict,
        VerifyQuery,
    ),
)
