"""What would become of some work if it were asked for now: its quota, the nodes it could be on, or why not.

Nothing is taken and nothing is queued. The checks are those of `sites.Devices` and `replicas`, in their order.
"""

from collections.abc import Iterator

import msgspec

from commonpool.core import story
from commonpool.core.candidates import Candidate
from commonpool.core.english import english
from commonpool.core.footprint import Footprint, convert
from commonpool.core.model import Cause, Hardware, Resource, Wait
from commonpool.core.quota import Node
from commonpool.core.replicas import owner_of
from commonpool.core.said import Said, say
from commonpool.core.sizing import JOB_NS_GUESS
from commonpool.core.state import State


class Lender(msgspec.Struct, frozen=True):
    """Who would lend how much: a tenant, a group, or "" for the pool's unowned part."""

    name: str
    milli_gpu: int


class Allowance(msgspec.Struct, frozen=True):
    """What a tenant's quota says of some work: the part that is its own, the part that it would borrow, and of whom.

    `cause` is what it would wait for, None where it would be allowed now; `text` says it in words, `said` by its name.
    """

    own_milli_gpu: int
    borrowed_milli_gpu: int
    lenders: tuple[Lender, ...]
    cause: Cause | None
    text: str
    said: Said | None = None


class Trial(msgspec.Struct, frozen=True):
    """Whether work would run now, and where. `footprint` is what it comes to.

    `impossible` says why it can never run in this pool ("" otherwise; then nothing else is told). `allowance` is None
    for a replica, which takes no quota: its requests do. `devices` are those that it would take, the first of them
    on `node`; where there is no room, `unplaced` says why. `candidates` are the pool's nodes, best first; none where
    they are not known. `ahead` is how many jobs wait in the pool already.
    """

    pool: str
    footprint: Footprint | None = None
    impossible: str = ""
    allowance: Allowance | None = None
    node: str = ""
    devices: tuple[str, ...] = ()
    unplaced: str = ""
    candidates: tuple[Candidate, ...] = ()
    ahead: int = 0


def job(
    state: State, tenant: str, hardware: Hardware, resources: dict[Resource, int], expected_ns: int | None, now: int
) -> Trial:
    """What would become of a job of a tenant of the policy; one that does not say how long it takes is guessed at."""
    pool = state.policy.tenants[tenant].pool
    asked = _footprint(state, pool, hardware, resources)
    if isinstance(asked, str):
        return Trial(pool, impossible=asked)
    most = state.quotas[pool].tenants[tenant].most
    if asked.total_milli_gpu > most:
        return Trial(
            pool,
            asked,
            f"It needs {asked.total_milli_gpu} milli_gpu; tenant {tenant} can never use more than {most} at once. "
            "Ask for less, or have its elastic_cap raised.",
        )
    lasts_ns = max(1, expected_ns or JOB_NS_GUESS)
    allowance = _allowance(state, tenant, asked.total_milli_gpu, resources, lasts_ns, now)
    kept = state.devices[pool].kept if allowance.borrowed_milli_gpu else 0
    placed = _place(state, pool, asked, tenant, now, now + lasts_ns, "", kept)
    return msgspec.structs.replace(placed, allowance=allowance, ahead=state.devices[pool].line.waiting)


def replica(state: State, model: str, now: int) -> Trial:
    """What would become of one more replica of a model of the policy."""
    deployment = state.policy.deployments[model]
    pool = deployment.pool
    if deployment.attached:
        return Trial(
            pool,
            impossible=f"Model {model} is served by engines that others have started; no place is looked for.",
        )
    asked = _footprint(state, pool, deployment.hardware or Hardware(milli_gpu=deployment.milli_gpu), {})
    if isinstance(asked, str):
        return Trial(pool, impossible=asked)
    return _place(state, pool, asked, owner_of(state, deployment), now, None, model, 0)


def _footprint(state: State, pool: str, hardware: Hardware, resources: dict[Resource, int]) -> Footprint | str:
    inventory = state.inventories.get(pool)
    if inventory is None:
        return convert(hardware, resources, (), pool)
    return inventory.footprint(hardware, resources)


# -- the devices -------------------------------------------------------------------------------------------------------


def _place(
    state: State, pool: str, asked: Footprint, owner: str, now: int, until: int | None, weights: str, kept: int
) -> Trial:
    devices = state.devices[pool]
    inventory = state.inventories.get(pool)
    candidates: tuple[Candidate, ...] = ()
    placement = None
    if inventory is not None:
        candidates = tuple(inventory.candidates(asked, owner, now, until, weights))
        placement = inventory.find(asked, owner, now, until, weights)
    if devices.free - kept < asked.total_milli_gpu:
        unplaced = (
            f"It needs {asked.total_milli_gpu} milli_gpu, and of pool {pool} {max(0, devices.free)} are held by nobody"
            f"{f', {kept} of them kept for replicas' if kept else ''}."
        )
    elif inventory is not None and placement is None:
        unplaced = inventory.why_not(asked, owner, now, until)
    elif placement is not None:
        return Trial(pool, asked, node=placement.node, devices=placement.devices, candidates=candidates)
    else:
        unplaced = ""
    return Trial(pool, asked, unplaced=unplaced, candidates=candidates)


# -- the quota ---------------------------------------------------------------------------------------------------------


def _allowance(
    state: State, tenant: str, ask: int, resources: dict[Resource, int], lasts_ns: int, now: int
) -> Allowance:
    pool = state.policy.tenants[tenant].pool
    node = state.quotas[pool].tenants[tenant]
    borrowed = max(0, node.use + ask - max(node.use, node.guaranteed))
    lenders = tuple(_lenders(state, pool, node, borrowed)) if borrowed else ()
    cause, about = _blocked(state, tenant, ask, resources, borrowed, lasts_ns, now)
    if cause is not None:
        said = say("allowance.waits", cause=story.cause(Wait(cause, about, 0)))
    elif not borrowed:
        said = say("allowance.own", tenant=tenant)
    else:
        loans = tuple(story.loan(each.name, each.milli_gpu) for each in lenders)
        said = say("allowance.borrows", tenant=tenant, milli_gpu=borrowed, loans=loans)
    return Allowance(ask - borrowed, borrowed, lenders, cause, english(said), said)


def _blocked(
    state: State, tenant: str, ask: int, resources: dict[Resource, int], borrowed: int, lasts_ns: int, now: int
) -> tuple[Cause | None, str]:
    """What the job would wait for, and whom that is about."""
    pool = state.policy.tenants[tenant].pool
    quota, devices, loans = state.quotas[pool], state.devices[pool], state.loans[pool]
    node = quota.tenants[tenant]
    also = [
        (other, other.tenants[tenant], resources[name])
        for name, other in state.others[pool].items()
        if resources.get(name)
    ]
    # 1. Its tenant's own bounds, in every resource.
    blocker = quota.blocker(node, ask)
    for other, its, amount in also:
        blocker = blocker or other.blocker(its, amount)
    if blocker is not None:
        full = blocker.running_max is not None and blocker.running >= blocker.running_max
        return Cause.CONCURRENCY if full else Cause.ELASTIC_CAP, blocker.name
    # 2. Nothing is lent while somebody waits for its own.
    own = not borrowed and all(its.use + amount <= its.guaranteed for _, its, amount in also)
    claimed = quota.claimed or devices.claimed
    if not own and claimed not in ("", tenant):
        return Cause.BORROWING_DENIED, claimed
    # 3. What is there.
    if quota.free_for(node) < ask:
        return (Cause.LOAN_DUE, loans.newest_borrower(tenant)) if own else (Cause.POOL_FULL, "")
    if any(other.free_for(its) < amount for other, its, amount in also):
        return Cause.POOL_FULL, ""
    # 4. Nothing is lent that is wanted back too soon.
    if borrowed and borrowed > loans.long_lendable(node, now, lasts_ns, state.forecasts):
        return Cause.FORECAST, ""
    return None, ""


def _lenders(state: State, pool: str, node: Node, amount: int) -> Iterator[Lender]:
    """Who would lend it, as far as that is known before: at home first, whoever has most idle there, ties by name."""
    quota, loans = state.quotas[pool], state.loans[pool]
    rooms: dict[Node, int] = {}
    for name, each in quota.tenants.items():
        if each is not node:
            rooms[each] = each.lendable - loans.lent(name)
    for name, group in quota.groups.items():
        if group.own:
            rooms[group] = group.own - loans.lent_by_group(name)
    circles: list[Node | None] = [step for step in node.path() if step.firm]
    for circle in [*circles, None]:
        inside = [each for each in rooms if circle is None or circle in each.path()]
        for each in sorted(inside, key=lambda each: (-rooms[each], each.name)):
            part = min(amount, rooms.pop(each))
            if part > 0:
                amount -= part
                yield Lender(each.name, part)
    if amount:
        yield Lender("", amount)
