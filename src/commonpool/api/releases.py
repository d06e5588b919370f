"""Under-used guarantees, and releases of them: who gave how much to everybody, and who took it back."""

from commonpool.api import wire
from commonpool.api.grants import ByTenant
from commonpool.api.http import BadRequestError, Endpoint, Nothing
from commonpool.api.operations import NotFoundError, OperationError, Operations
from commonpool.config.problems import listed
from commonpool.config.quantities import format_gpu
from commonpool.store.releases import Release


async def underuse(operations: Operations, _: Nothing) -> wire.Underused:
    found = tuple(operations.underuse())
    return wire.Underused(found, sum(each.offered_milli_gpu for each in found))


async def releases(operations: Operations, _: Nothing) -> wire.Releases:
    return wire.Releases(tuple(await operations.releases()))


async def release(operations: Operations, _: Nothing, new: wire.NewRelease, by: str) -> Release:
    tenants = operations.config().policy.tenants
    if new.tenant not in tenants:
        raise BadRequestError(f"there is no tenant {new.tenant!r}; there is {listed(tenants)}", param="tenant")
    if not new.reason.isprintable():
        raise BadRequestError("the reason has characters that cannot be printed", param="reason")
    milli_gpu = new.milli_gpu if new.milli_gpu is not None else _offered(operations, new.tenant)
    most = operations.releasable(new.tenant)
    if milli_gpu > most:
        raise BadRequestError(
            f"tenant {new.tenant} can release {format_gpu(most)} now, and not {format_gpu(milli_gpu)}: what it has"
            " reserved and what it uses stays its own; ask for less",
            param="milli_gpu",
        )
    return await operations.release(Release(new.tenant, milli_gpu, operations.now_ns(), by, new.reason))


async def undo(operations: Operations, which: ByTenant, by: str) -> wire.Releases:
    undone = tuple(await operations.undo_releases(which.tenant, by))
    if not undone:
        raise NotFoundError(
            f"tenant {which.tenant!r} has released nothing that could be undone; `commonpool release --list` shows"
            " what was released",
            param="tenant",
        )
    return wire.Releases(undone)


def _offered(operations: Operations, tenant: str) -> int:
    for each in operations.underuse():
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
        "Guarantees that are under-used, with the evidence and what could be released",
        wire.Underused,
    ),
    Endpoint("GET", "/admin/v1/releases", releases, "What was released, the newest first", wire.Releases),
    Endpoint(
        "POST",
        "/admin/v1/releases",
        release,
        "A part of a tenant's guarantee is everybody's until that is undone; what is in use stays",
        Release,
        body=wire.NewRelease,
        status=201,
        audited=True,
    ),
    Endpoint(
        "POST",
        "/admin/v1/releases/{tenant}/undo",
        undo,
        "The tenant's whole guarantee holds again; answered with what is undone",
        wire.Releases,
        ByTenant,
        audited=True,
    ),
)
