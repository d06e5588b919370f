"""Tenants that a filter names: of one that there is not nothing is found, and an empty answer would hide it."""

from collections.abc import Collection, Mapping

from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.subjects import Who
from commonpool.config.problems import listed


async def check_named(operations: Operations, named: Mapping[str, Collection[str]], who: Who, *, found: bool) -> None:
    """Where nothing is found, refuse a name that neither the configuration knows nor any request that was counted.

    `named` are the names by the parameter that they came in; "" names no tenant. Who may know of some tenants is told
    nothing of others, not even whether there are such. While not all is counted, nobody is refused.
    """
    policy = operations.config().policy
    unknown = {name: param for param, names in named.items() for name in names if name not in {"", *policy.tenants}}
    if found or not unknown or who.scope.tenants is not None:
        return
    filters = {"tenant": tuple(sorted(unknown))}
    table, complete, _ = await operations.waits().table(("tenant",), 0, operations.now_ns() + 1, filters)
    past = {line.keys[0] for line in table.lines}
    for name, param in sorted(unknown.items()):
        if name not in past and complete:
            raise BadRequestError(
                f"there is no tenant {name!r}, and no request of one is known; there is {listed(policy.tenants)}",
                param=param,
            )
