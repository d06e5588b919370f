"""Tenants that a filter names: of one that there is not nothing is found, and an empty answer would hide it."""

from collections.abc import Collection

from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.subjects import Who
from commonpool.config.problems import listed


async def check_named(operations: Operations, names: Collection[str], who: Who, *, found: bool) -> None:
    """Where nothing is found, refuse a name that neither the configuration knows nor any request that was counted.

    "" names no tenant. Who may know of some tenants is told nothing of others, not even whether there are such.
    """
    policy = operations.config().policy
    unknown = sorted({*names} - {"", *policy.tenants})
    if found or not unknown or who.scope.tenants is not None:
        return
    table, _, __ = await operations.waits().table(("tenant",), 0, operations.now_ns() + 1, {"tenant": unknown})
    past = {line.keys[0] for line in table.lines}
    for name in unknown:
        if name not in past:
            raise BadRequestError(
                f"there is no tenant {name!r}, and no request of one is known; there is {listed(policy.tenants)}",
                param="tenant",
            )
