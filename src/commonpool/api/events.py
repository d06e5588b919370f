"""What is decided and what changes, as it happens: server-sent events, for as long as the caller may know of it."""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from commonpool.access.permissions import Permission
from commonpool.access.scope import Scope
from commonpool.api.access import identified, may_not
from commonpool.api.decisions import number_of, place, shown, visible
from commonpool.api.http import Endpoint
from commonpool.api.operations import OperationError, Operations, Stream
from commonpool.api.streaming import EVENTS, Streamed, event
from commonpool.api.subjects import ACROSS, Who
from commonpool.api.wire import decisions as wire
from commonpool.core.model import NS_PER_S, Policy
from commonpool.observe.changes import What
from commonpool.store.contract import StoreError

LOOK_S: Final = 1.5  # a caller whose key or session ends is heard of so soon, also where nothing else is
HEARTBEAT_NS: Final = 15 * NS_PER_S  # a proxy in between ends what is silent for a minute, or half of one
BEGIN: Final = b"retry: 2000\n: open\n\n"
ALIVE: Final = b": alive\n\n"


class EventsQuery(msgspec.Struct, frozen=True):
    """Behind which decision to begin; a `Last-Event-ID` header, which browsers send by themselves, says the same."""

    after: str | None = None


class Change(msgspec.Struct, frozen=True):
    """The parts of the status that have changed; the data of a `changed`."""

    at_ns: int
    what: tuple[What, ...]


async def events(operations: Operations, query: EventsQuery, who: Who) -> Streamed:
    feed = operations.feed()
    after = who.visit.headers.get("last-event-id", query.after)
    number = feed.decisions.last if after is None else number_of(feed, after)
    stream = feed.listen(who.caller.name, who.visit.address)
    return Streamed(_told(operations, who, stream, number), stream.close)


async def _told(operations: Operations, who: Who, stream: Stream, number: int) -> AsyncIterator[bytes]:
    """The events behind a number, until the caller may not have them any more or the product stops."""
    said_ns, scope, goes_on = operations.now_ns(), who.scope, True
    yield BEGIN
    while goes_on:
        pieces = [piece async for piece in _news(operations, scope, stream, number)]
        number = operations.feed().decisions.last
        now_ns = operations.now_ns()
        if not pieces and said_ns + HEARTBEAT_NS <= now_ns:
            pieces = [ALIVE]
        if pieces:
            said_ns = now_ns
            yield b"".join(pieces)
        goes_on = await stream.waited(LOOK_S)
        try:
            scope = await _reach(operations, who)
        except OperationError as error:
            yield event("over", {"message": str(error)})
            return
        except StoreError:  # who it is cannot be known now; whoever it is may come again
            return


async def _news(operations: Operations, scope: Scope, stream: Stream, number: int) -> AsyncIterator[bytes]:
    feed, policy = operations.feed(), operations.config().policy
    for decision in visible(feed.decisions.after(number), scope, policy):
        yield event("decision", shown(feed, decision, scope), place(feed, decision.number))
    what = stream.changed().among(None if scope.everything else _known(scope, policy))
    if what:
        yield event("changed", Change(operations.now_ns(), what))


async def _reach(operations: Operations, who: Who) -> Scope:
    """How far the caller reaches now. An error says why it is nobody any more. Looking is no use of a session."""
    caller = await identified(operations, "GET", who.visit, passive=True)
    scope = operations.authority().scope(caller, Permission.READ_STATUS, operations.config().policy.tenants)
    if not scope or caller.name != who.caller.name:
        raise may_not(caller, Permission.READ_STATUS)
    return scope


def _known(scope: Scope, policy: Policy) -> Mapping[What, frozenset[str]]:
    """Of what the status shows a change, as `views.within` says."""
    own = scope.of(policy.tenants)
    return {
        "tenants": frozenset(own),
        "pools": frozenset(tenant.pool for tenant in own.values()),
        "models": frozenset(name for tenant in own.values() for name in tenant.models or policy.deployments),
        "jobs": frozenset(own),
        "config": frozenset({""}),
    }


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/events",
        events,
        Permission.READ_STATUS,
        ACROSS,
        "Decisions, and what has changed, as server-sent events: `decision`, `changed`, and `over` at the end",
        wire.Decision,
        EventsQuery,
        media=EVENTS,
    ),
)
