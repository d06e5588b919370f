"""The last decisions of the product with their reasons, as far as the caller may know of them."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from commonpool.access.permissions import Permission
from commonpool.access.scope import Scope
from commonpool.api.http import Endpoint
from commonpool.api.named import check_named
from commonpool.api.operations import BadRequestError, Feed, Operations
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.wire import decisions as wire
from commonpool.api.wire.units import Ns
from commonpool.core.model import Policy
from commonpool.observe.decisions import KEPT_MAX, KINDS, Decision


class DecisionsQuery(msgspec.Struct, frozen=True):
    """Decisions since a moment; of some kinds and tenants where they are named, `limit` at most."""

    since_ns: Ns = 0
    kind: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    limit: Annotated[int, msgspec.Meta(ge=1, le=KEPT_MAX)] = 200


async def decisions(operations: Operations, query: DecisionsQuery, who: Who) -> wire.Decisions:
    for kind in query.kind:
        if kind not in KINDS:
            raise BadRequestError(f"there is no kind {kind!r} of decision; there is {', '.join(KINDS)}", param="kind")
    feed = operations.feed()
    found = [
        each
        for each in visible(feed.decisions.after(0), who.scope, operations.config().policy)
        if each.at_ns >= query.since_ns
        and (not query.kind or each.kind in query.kind)
        and (not query.tenant or not set(query.tenant).isdisjoint(each.tenants))
    ]
    await check_named(operations, {"tenant": query.tenant}, who, found=bool(found))
    newest = found[: -query.limit - 1 : -1]
    return wire.Decisions(
        tuple(shown(feed, each, who.scope) for each in newest),
        feed.decisions.lost if who.scope.everything else 0,
        place(feed, feed.decisions.last),
    )


def visible(found: Sequence[Decision], scope: Scope, policy: Policy) -> Iterator[Decision]:
    """Those about tenants that it reaches, and those about models that such a tenant may use and about no tenant."""
    if scope.everything:
        yield from found
    elif found:
        own = scope.of(policy.tenants)
        models = {name for tenant in own.values() for name in tenant.models or policy.deployments}
        for each in found:
            if any(tenant in scope for tenant in each.tenants) if each.tenants else each.model in models:
                yield each


def shown(feed: Feed, decision: Decision, scope: Scope) -> wire.Decision:
    """As the caller is shown it: what runs where is the operators' own."""
    return wire.Decision(
        id=place(feed, decision.number),
        at_ns=decision.at_ns,
        kind=decision.kind,
        tenants=decision.tenants,
        model=decision.model,
        pool=decision.pool,
        subject=decision.subject,
        explanation=decision.explanation,
        milli_gpu=decision.milli_gpu,
        node=decision.node if scope.everything else "",
        said=decision.said,
    )


def place(feed: Feed, number: int) -> str:
    """The place behind a decision, for who asks for what follows."""
    return f"{feed.run}.{number}"


def number_of(feed: Feed, place: str) -> int:
    """Behind which number that is; 0 for the place of another process, whose decisions are not kept here."""
    run, _, number = place.rpartition(".")
    known = run == feed.run and number.isascii() and number.isdecimal() and len(number) < 20  # noqa: PLR2004 - a number's
    return min(int(number), feed.decisions.last) if known else 0


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/decisions",
        decisions,
        Permission.READ_STATUS,
        ACROSS,
        "The last decisions with their reasons, the newest first",
        wire.Decisions,
        DecisionsQuery,
    ),
)
