"""Prompt logs: a tenant switches its own on and off, reads what is in it, and deletes it."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.access.secrets import SecretsError
from commonpool.api.grants import ByTenant
from commonpool.api.http import Endpoint
from commonpool.api.operations import BadRequestError, ConflictError, NotFoundError, Operations
from commonpool.api.places import no_place, number
from commonpool.api.subjects import TENANT_OF_PATH, Who
from commonpool.api.wire import prompts as wire
from commonpool.config.quantities import format_duration
from commonpool.core.model import NS_PER_HOUR
from commonpool.store.prompts import PromptHead, PromptPlace

ENTRIES_MAX = 1000  # in one answer
KEEP_NS_MIN = NS_PER_HOUR
KEEP_NS_MAX = 366 * 24 * NS_PER_HOUR


class PromptsQuery(msgspec.Struct, frozen=True):
    """`after` is that of the answer before, "" for none."""

    tenant: str
    after: str = ""


class OneEntry(msgspec.Struct, frozen=True):
    """One entry, by the request's id."""

    tenant: str
    id: str


async def entries(operations: Operations, query: PromptsQuery, _: Who) -> wire.PromptEntries:
    found = await operations.prompts().heads(query.tenant, _before(query.after), ENTRIES_MAX)
    after = f"{found[-1].at_ns}-{found[-1].request_id}" if len(found) == ENTRIES_MAX else None
    return wire.PromptEntries(await _log(operations, query.tenant), tuple(map(_entry, found)), after)


async def show(operations: Operations, which: OneEntry, _: Who) -> wire.Prompt:
    try:
        found = await operations.prompts().show(which.tenant, which.id)
    except SecretsError as error:
        raise ConflictError(str(error)) from None
    if found is None:
        raise _no_entry(which.id)
    head, text = found
    asked, answered = (part.decode(errors="replace") for part in (text.asked, text.answered))
    return wire.Prompt(_entry(head), asked, answered, text.cut)


async def switch_on(operations: Operations, which: ByTenant, wanted: wire.PromptLogOn, who: Who) -> wire.PromptLog:
    if not KEEP_NS_MIN <= wanted.keep_ns <= KEEP_NS_MAX:
        raise BadRequestError(
            f"entries can be kept from {format_duration(KEEP_NS_MIN)} to {format_duration(KEEP_NS_MAX)}, and not "
            f"{format_duration(wanted.keep_ns)}",
            param="keep_ns",
        )
    try:
        await operations.prompts().switch_on(which.tenant, wanted.keep_ns, who.name)
    except SecretsError as error:
        raise ConflictError(str(error)) from None
    return await _log(operations, which.tenant)


async def switch_off(operations: Operations, which: ByTenant, _: Who) -> wire.PromptLog:
    await operations.prompts().switch_off(which.tenant)
    return await _log(operations, which.tenant)


async def delete_all(operations: Operations, which: ByTenant, _: Who) -> wire.Deleted:
    return wire.Deleted(await operations.prompts().delete(which.tenant))


async def delete(operations: Operations, which: OneEntry, _: Who) -> wire.Deleted:
    count = await operations.prompts().delete(which.tenant, which.id)
    if not count:
        raise _no_entry(which.id)
    return wire.Deleted(count)


async def _log(operations: Operations, tenant: str) -> wire.PromptLog:
    prompts = operations.prompts()
    log = prompts.log_of(tenant)
    return wire.PromptLog(
        tenant,
        since_ns=None if log is None else log.since_ns,
        keep_ns=None if log is None else log.keep_ns,
        switched_by=None if log is None else log.switched_by,
        kept_bytes=await prompts.kept_bytes(tenant),
        lost=prompts.lost.get(tenant, 0),
    )


def _entry(head: PromptHead) -> wire.PromptEntry:
    return wire.PromptEntry(**{name: getattr(head, name) for name in wire.PromptEntry.__struct_fields__})


def _before(after: str) -> PromptPlace | None:
    if not after:
        return None
    text, _, request_id = after.partition("-")
    if (at_ns := number(text)) is None or not request_id:
        raise no_place(after)
    return at_ns, request_id


def _no_entry(request_id: str) -> NotFoundError:
    return NotFoundError(f"there is no entry of request {request_id!r}; `commonpool prompts list` shows what there is")


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/tenants/{tenant}/prompts",
        entries,
        Permission.READ_PROMPTS,
        TENANT_OF_PATH,
        "The tenant's prompt log, the newest entries first, in pages",
        wire.PromptEntries,
        PromptsQuery,
    ),
    Endpoint(
        "DELETE",
        "/admin/v1/tenants/{tenant}/prompts",
        delete_all,
        Permission.KEEP_PROMPTS,
        TENANT_OF_PATH,
        "Every entry is deleted, and the key that they are encrypted with",
        wire.Deleted,
        ByTenant,
    ),
    Endpoint(
        "GET",
        "/admin/v1/tenants/{tenant}/prompts/{id}",
        show,
        Permission.READ_PROMPTS,
        TENANT_OF_PATH,
        "What was asked and answered",
        wire.Prompt,
        OneEntry,
    ),
    Endpoint(
        "DELETE",
        "/admin/v1/tenants/{tenant}/prompts/{id}",
        delete,
        Permission.KEEP_PROMPTS,
        TENANT_OF_PATH,
        "One entry is deleted",
        wire.Deleted,
        OneEntry,
    ),
    Endpoint(
        "POST",
        "/admin/v1/tenants/{tenant}/prompts/on",
        switch_on,
        Permission.KEEP_PROMPTS,
        TENANT_OF_PATH,
        "What the tenant asks, and is answered, is kept from now on, encrypted with a key of its own",
        wire.PromptLog,
        ByTenant,
        wire.PromptLogOn,
    ),
    Endpoint(
        "POST",
        "/admin/v1/tenants/{tenant}/prompts/off",
        switch_off,
        Permission.KEEP_PROMPTS,
        TENANT_OF_PATH,
        "Nothing more is kept; what was stays until it is deleted or too old",
        wire.PromptLog,
        ByTenant,
    ),
)
