"""Under-used guarantees, and releases of them: who gave how much to everybody, and who took it back."""

from commonpool.access.permissions import Permission
from commonpool.api.grants import ByTenant
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, NotFoundError, OperationError, Operations
from commonpool.api.subjects import ACROSS, TENANT_OF_BODY, TENANT_OF_PATH, Who
from commonpool.api.wire import releases as wire
from commonpool.config.quantities import format_gpu
from commonpool.store.releases import Release


async def underuse(operations: Operations, _: Nothing, who: Who) -> wire.Underused:
    found = tuple(each for each in operations.guarantees().underuse() if each.tenant in who.scope)
    return wire.Underused(found, sum(each.offered_milli_gpu for each in found))


async def releases(operations: Operations, _: Nothing, who: Who) -> wire.Releases:
    return wire.Releases(tuple(await operations.guarantees().releases(who.scope.names())))


async def release(operations: Operations, _: Nothing, new: wire.NewRelease, who: Who) -> Release:
    if not new.reason.isprintable():
        raise BadRequestError("the reason has characters that cannot be printed", param="reason")
    milli_gpu = new.milli_gpu if new.milli_gpu is not None else _offered(operations, new.tenant)
    guarantees = operations.guarantees()
    most = guarantees.releasable(new.tenant)
    if milli_gpu > most:
        raise BadRequestError(
            f"tenant {new.tenant} can release {format_gpu(most)} now, and not {format_gpu(milli_gpu)}: what it has"
            " reserved and what it uses stays its own; ask for less",
            param="milli_gpu",
        )
    return await operations.guarantees().release(
        Release(new.tenant, milli_gpu, operations.now_ns(), who.name, new.reason)
    )


async def undo(operations: Operations, which: ByTenant, who: Who) -> wire.Releases:
    undone = tuple(await operations.guarantees().undo(which.tenant, who.name))
    if not undone:
        raise NotFoundError(
            f"tenant {which.tenant!r} has released nothing that could be undone; `commonpool release --list` shows"
            " what was released",
            param="tenant",
        )
    return wire.Releases(undone)


def _offered(operations: Operations, tenant: str) -> int:
    for each in operations.guarantees().underuse():
        if each.tenant == tenant:
            return each.offered_milli_gpu
    raise OperationError(
        f"the guarantee of tenant {tenant} is not under-used, so nothing is offered for release; say how much with"
        " --gpus (milli_gpu)",
        param="milli_gpu",
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/underuse",
        underuse,
        Permission.READ_STATUS,
        ACROSS,
        "Guarantees that are under-used, with the evidence and what could be released",
        wire.Underused,
    ),
    Endpoint(
        "GET",
        "/admin/v1/releases",
        releases,
        Permission.READ_STATUS,
        ACROSS,
        "What was released, the newest first",
        wire.Releases,
    ),
    Endpoint(
        "POST",
        "/admin/v1/releases",
        release,
        Permission.RELEASE,
        TENANT_OF_BODY,
        "A part of a tenant's guarantee is everybody's until that is undone; what is in use stays",
        Release,
        body=wire.NewRelease,
        status=201,
    ),
    Endpoint(
        "POST",
        "/admin/v1/releases/{tenant}/undo",
        undo,
        Permission.UNDO_RELEASE,
        TENANT_OF_PATH,
        "The tenant's whole guarantee holds again; answered with what is undone",
        wire.Releases,
        ByTenant,
    ),
)
