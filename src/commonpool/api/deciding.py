"""Before a handler is called: who asks, whether they may, and a line in the audit log that says so."""

import msgspec

from commonpool.access.audit import Decided
from commonpool.access.callers import NOBODY
from commonpool.access.people import Visit
from commonpool.access.permissions import OPEN, Permission
from commonpool.access.scope import NOTHING, Scope
from commonpool.api.access import identified, may_not
from commonpool.api.operations import OperationError, Operations, UnavailableError
from commonpool.api.subjects import PLATFORM, Asked, Subject, Who
from commonpool.store.contract import StoreError

ON_PLATFORM = " for the whole platform"


class Call(msgspec.Struct, frozen=True):
    """What HTTP says of a call."""

    method: str
    path: str
    visit: Visit


async def admit(operations: Operations, permission: Permission, of: Subject, call: Call) -> Who:
    """Who asks. Raises an error where that is nobody, or somebody who has this permission nowhere.

    What is open by design (`OPEN`) is so to whoever brings a wrong credential, too, and is not in the audit log.
    """
    if permission in OPEN and operations.authority().decide(NOBODY, permission).allowed:
        return Who(NOBODY, NOTHING, call.visit)
    try:
        caller = await identified(operations, call.method, call.visit)
    except OperationError:
        operations.audit().note(_decided(operations, permission, call, Who(NOBODY, NOTHING), "", allowed=False))
        raise
    scope = operations.authority().scope(caller, permission, operations.config().policy.tenants)
    if not scope or (of is PLATFORM and not scope.platform):
        denied = _decided(operations, permission, call, Who(caller, scope), caller.tenant, allowed=False)
        operations.audit().note(denied)
        raise may_not(caller, permission, ON_PLATFORM if scope else "")
    return Who(caller, scope, call.visit)


async def decide(operations: Operations, permission: Permission, of: Subject, call: Call, asked: Asked) -> None:
    """Returns where it may be done. Raises an error where it is not the caller's to ask for.

    Also where it is a change that the audit log cannot take.
    """
    caller, scope = asked.who.caller, asked.who.scope
    if caller is NOBODY:  # whom `admit` lets in to what is open by design alone
        return
    # 1. Whose it is, and so whether it may be. Who may know of everything is told truly that there is no such thing.
    tenant: str | None = scope.single
    allowed = True
    if of.find is not None:
        tenant = await of.find(operations, asked)
        allowed = scope.everything if tenant is None else tenant in scope
    decided = _decided(operations, permission, call, asked.who, tenant or "", allowed=allowed)
    # 2. It is kept, before anything is done.
    await _keep(operations, decided)
    # 3. What is foreign is answered as what does not exist.
    if tenant is None or not allowed:
        raise of.missing(operations, asked) if tenant != "" and of.missing else may_not(caller, permission, ON_PLATFORM)


async def decide_too(operations: Operations, permission: Permission, call: Call, who: Who) -> None:
    """Returns where they may do that to the platform as well, in a call that was decided. Raises an error otherwise."""
    allowed = operations.authority().decide(who.caller, permission).allowed
    await _keep(operations, _decided(operations, permission, call, who, "", allowed=allowed))
    if not allowed:
        raise may_not(who.caller, permission)


async def _keep(operations: Operations, decided: Decided) -> None:
    """A change that is allowed is in the audit log when this returns; the rest is written soon."""
    if not (decided.allowed and decided.permission.changes):
        operations.audit().note(decided)
        return
    try:
        await operations.audit().keep(decided)
    except StoreError as error:
        raise UnavailableError(f"nothing was done, since the audit log cannot be written: {error}") from error


def _decided(
    operations: Operations, permission: Permission, call: Call, who: Who, tenant: str, *, allowed: bool
) -> Decided:
    return Decided(
        caller=who.caller,
        permission=permission,
        tenant=tenant,
        allowed=allowed,
        policies=operations.authority().decide(who.caller, permission, tenant or _sample(who.scope)).policies,
        method=call.method,
        path=call.path,
        peer=call.visit.address,
    )


def _sample(scope: Scope) -> str | None:
    """Where to ask for the policies that decide about several tenants: they are the same for all, but for odd ones."""
    return None if scope.platform or not scope.tenants else min(scope.tenants)
