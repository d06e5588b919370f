"""The life of one request in order of time: when it came, whom and what it waited for, where it ran, how it ended."""

from collections.abc import Iterator, Mapping

from commonpool.access.permissions import Permission
from commonpool.access.scope import Scope
from commonpool.api import requests, trace
from commonpool.api.http import Endpoint
from commonpool.api.operations import Operations, Passed
from commonpool.api.requests import ById
from commonpool.api.subjects import Who
from commonpool.api.wire import requests as wire
from commonpool.api.wire.bill import AttemptPostings
from commonpool.core import explain, story
from commonpool.core.english import english
from commonpool.core.model import Loan, UsageRecord, Wait
from commonpool.core.said import Said, clauses, say
from commonpool.core.standing import NONE, Before, Passage, Standing


async def timeline(operations: Operations, query: ById, who: Who) -> wire.RequestTimeline:
    live = operations.live(query.id)  # first: what ends meanwhile is among the records then
    standing, passed = operations.standing(query.id), await operations.running(query.id)
    now_ns = operations.now_ns()
    ended = tuple(map(trace.shown, await operations.bills().settled(query.id)))
    attempt = passed.record.attempt if passed else standing.attempt if standing else 0
    if any(each.attempt.attempt == attempt for each in ended):
        live = None  # it has ended since it was looked at
    of: wire.LiveRequest | UsageRecord
    if ended:
        of = ended[-1].attempt
        state, arrived_ns = of.outcome.value, ended[0].attempt.arrived_ns
    else:
        assert live is not None  # noqa: S101 - else nothing of that id was found, and this was not called
        of, state = live, live.state
        arrived_ns = standing.arrived_ns if standing else passed.record.arrived_ns if passed else now_ns
    if live is not None:
        state = live.state
    came = say("step.arrived", model=of.model) if of.model else say("step.arrived_job")
    steps = [wire.Step(arrived_ns, "arrived", 1, english(came), 0, said=came)]
    waiting_since = arrived_ns
    for each in ended:
        steps += await _ended(operations, each, waiting_since, who.scope)
        waiting_since = each.attempt.arrived_ns + each.attempt.total_ns
    if live is not None and passed is not None:
        steps += await _running(operations, passed, waiting_since, who.scope)
    elif live is not None and standing is not None:
        steps.append(await _waiting(operations, query.id, live, standing, now_ns, who.scope))
    return wire.RequestTimeline(
        id=query.id,
        tenant=of.tenant,
        app=of.app,
        model=of.model,
        tier=of.tier,
        state=state,
        now_ns=now_ns,
        arrived_ns=arrived_ns,
        steps=tuple(steps),
        standing=standing if live is not None and passed is None else None,
        cost_micro=sum(each.cost_micro for each in ended),
        currency=operations.config().currency,
    )


async def _ended(operations: Operations, each: AttemptPostings, since_ns: int, scope: Scope) -> list[wire.Step]:
    """The steps of an attempt that has ended; it waited since then."""
    record = each.attempt
    ended_ns = record.arrived_ns + record.total_ns
    waited = tuple(Wait(part.cause, part.name, part.ns) for part in record.waits)
    steps = await _until_dispatch(operations, record, since_ns, waited, scope)
    if record.milli_gpu:
        steps.append(_dispatched(operations, record, record.loans, scope))
    if record.first_token_ns:
        steps.append(_first_token(record, record.arrived_ns + record.first_token_ns))
    said = story.ended(record)
    steps.append(
        wire.Step(
            ended_ns,
            "ended",
            record.attempt,
            english(said),
            record.total_ns,
            milli_gpu=record.milli_gpu,
            outcome=record.outcome.value,
            status=record.status,
            tokens_in=record.tokens_in,
            tokens_out=record.tokens_out,
            cost_micro=None if each.problem else each.cost_micro,
            said=said,
        )
    )
    return steps


async def _running(operations: Operations, passed: Passed, since_ns: int, scope: Scope) -> list[wire.Step]:
    record = passed.record
    steps = await _until_dispatch(operations, record, since_ns, record.waits, scope)
    steps.append(_dispatched(operations, record, record.loans, scope))
    if passed.first_token_at_ns:
        steps.append(_first_token(record, passed.first_token_at_ns))
    return steps


async def _until_dispatch(
    operations: Operations, record: UsageRecord, since_ns: int, waits: tuple[Wait, ...], scope: Scope
) -> list[wire.Step]:
    """That it waited, where it did."""
    until_ns = record.arrived_ns + record.wait_ns
    if until_ns <= since_ns:
        return []
    before = await _before(operations, record, Passage(record.request_id, record.model, since_ns, until_ns), scope)
    length = until_ns - since_ns
    said = say("step.waited", wait=story.waited(length, waits), crowd=_crowd(before, record.tenant))
    parts = explain.parts(waits)
    return [wire.Step(since_ns, "queued", record.attempt, english(said), length, parts, before, said=said)]


async def _waiting(
    operations: Operations, request_id: str, live: wire.LiveRequest, standing: Standing, now_ns: int, scope: Scope
) -> wire.Step:
    before = await _before(operations, live, Passage(request_id, live.model, standing.queued_ns, now_ns), scope)
    said = say("step.waits", wait=story.waited(live.wait_ns, live.waits), crowd=_crowd(before, live.tenant))
    return wire.Step(
        standing.queued_ns, "queued", standing.attempt, english(said), live.wait_ns, live.waits, before, said=said
    )


async def _before(
    operations: Operations, of: wire.LiveRequest | UsageRecord, passage: Passage, scope: Scope
) -> tuple[wire.Before, ...]:
    """Its own tenant, then the others, as far as the caller may know of them by name; the most first."""
    if not passage.model:
        return ()
    found = await operations.before(passage)
    named, others = _named(found, of.tenant, scope)
    rows = [wire.Before(tenant, each.waiting, each.served) for tenant, each in named.items()]
    rows.sort(key=lambda row: (row.tenant != of.tenant, -row.waiting - row.served, row.tenant))
    if others != NONE:
        rows.append(wire.Before("", others.waiting, others.served))
    return tuple(rows)


def _named(found: Mapping[str, Before], own: str, scope: Scope) -> tuple[dict[str, Before], Before]:
    named: dict[str, Before] = {}
    others = NONE
    for tenant, each in found.items():
        if tenant == own or tenant in scope:
            named[tenant] = each
        else:
            others = others.plus(each)
    return named, others


def _crowd(before: tuple[wire.Before, ...], tenant: str) -> Said:
    """How many were there when it came, and how many of others were served meanwhile."""
    own = sum(row.waiting for row in before if row.tenant == tenant)
    others = sum(row.waiting for row in before if row.tenant != tenant)
    served = sum(row.served for row in before if row.tenant != tenant)
    return clauses(
        say("step.some_waited", own=own, others=others) if own or others else say("step.none_waited"),
        say("step.served", served=served) if served else None,
    )


def _dispatched(operations: Operations, record: UsageRecord, loans: tuple[Loan, ...], scope: Scope) -> wire.Step:
    borrowed = tuple(_loans(loans))
    said = clauses(
        say("step.on_replica", replica=record.replica)
        if record.replica
        else say("step.on_gpus", milli_gpu=record.milli_gpu),
        say("step.borrowed", loans=borrowed) if borrowed else None,
    )
    return wire.Step(
        record.arrived_ns + record.wait_ns,
        "dispatched",
        record.attempt,
        english(said),
        record.wait_ns,
        replica=record.replica,
        node=_node(operations, record.replica) if scope.everything else "",
        milli_gpu=record.milli_gpu,
        loans=loans,
        said=said,
    )


def _loans(loans: tuple[Loan, ...]) -> Iterator[Said]:
    lent: dict[str, int] = {}
    for loan in loans:
        lent[loan.lender] = max(lent.get(loan.lender, 0), loan.milli_gpu)
    for lender, milli_gpu in lent.items():
        yield story.loan(lender, milli_gpu)


def _node(operations: Operations, replica_id: str) -> str:
    """Where it runs, while it does."""
    return next((each.node for each in operations.replicas() if each.id == replica_id), "")


def _first_token(record: UsageRecord, at_ns: int) -> wire.Step:
    after_ns = at_ns - record.arrived_ns
    said = say("step.first_token", length_ns=after_ns)
    return wire.Step(at_ns, "first_token", record.attempt, english(said), after_ns, said=said)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/requests/{id}/timeline",
        timeline,
        Permission.READ_REQUESTS,
        requests.OF_REQUEST,
        "The life of one request: whom and what it waited for, where it ran, how it ended",
        wire.RequestTimeline,
        ById,
    ),
)
