"""Admission: whether a request or job is taken, and what is reserved for it when it is.

Everything is checked before anything is taken: what is refused has consumed nothing. A refusal says in one sentence
which limit, whose, and when it is worth trying again.
"""

from operator import gt
from typing import Final, cast

import msgspec

from commonpool.core import sizing
from commonpool.core.budget import UNKNOWN_PACE_NS
from commonpool.core.entries import BEHIND, FAR, Entry, holds
from commonpool.core.explain import duration
from commonpool.core.footprint import convert
from commonpool.core.limits import ENDLESS, SECONDS_PER_MINUTE, Held, Rate, Tally
from commonpool.core.model import LATER, MILLI_PER_GPU, NS_PER_S, Hardware, Job, Reason, Request, Tenant, Usage
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST, Account, Flow
from commonpool.core.sites import Serving
from commonpool.core.sizing import Shape
from commonpool.core.state import State

RETRY_AFTER_MIN_NS: Final = NS_PER_S
_SILENT: Final = ("embeddings", LATER)  # endpoints of which what says nothing of its output may have none


class Refusal(msgspec.Struct, frozen=True):
    """Why something is not taken, in one sentence, and when it is worth trying again (None: never)."""

    reason: Reason
    message: str
    retry_after_ns: int | None = None


def admit(state: State, entry: Entry, request: Request, now: int, *, instead: bool = False) -> Refusal | None:
    """Take a request in, or say why not. `entry` is filled in.

    `instead`: it is for the fallback of its model. That may take at once what its tenant's queue leaves no time for.
    What waits behind all else finds no queue too long: whoever kept it hands in little at a time.
    """
    name, tier = request.tenant, request.tier
    behind = request.endpoint == LATER
    flow = revoked(request.key) if request.key in state.revoked else _flow(state, name, request, tier, now)
    if not isinstance(flow, Flow):
        return flow
    site = cast("Serving", flow.room)
    node, account, shape = flow.node, flow.account, site.shape
    tallies = state.tallies(account, request) if account.apps or state.keys else ()

    # 1. What it would take, and whether that can ever be had.
    tokens_in, tokens_out_max, sequences = request.tokens_in, request.tokens_out_max, request.sequences
    kv, ask = sizing.shares(tokens_in, tokens_out_max, sequences, shape)
    if ask > node.most or kv > shape.kv_tokens or not 0 < sequences <= shape.slots:
        return never_fits(request, shape, kv, ask, node.most)

    # 2. Limits, all of them before any is taken.
    learned = flow.expected.get(request.app, 0)
    expected = sequences * sizing.output_tokens(tokens_in, tokens_out_max, shape, learned)
    work = ask * (INPUT_COST * tokens_in + OUTPUT_COST * expected)
    cost = _cost(site, account, work, now)
    refusal = _queue_full(account) if account.waiting >= account.queue_length and not behind else None
    if refusal is None and (account.limited or tallies):
        refusal = _within_limits((account, *tallies), request, expected, now, waits=not behind)
    if refusal is None:
        refusal = _over_budget(account, name, cost, now)
    if refusal is not None:
        return refusal

    # 3. The promise.
    rate = max(node.guaranteed - account.by_jobs, ask)
    if account.waiting and not behind:
        refusal = _too_late(flow, site, tallies, rate)
        if refusal is not None:
            entry.flow, entry.sequences, entry.kv, entry.ask, entry.tallies = flow, sequences, kv, ask, tallies
            if not (instead and site.starts_at_once(entry)):
                return refusal

    # 4. Take.
    if account.limited or tallies:
        entry.taken = _take((account, *tallies), request, tokens_in + expected, now)
        entry.tallies = tallies
    entry.flow, entry.node = flow, node
    entry.tokens_in, entry.sequences, entry.kv, entry.ask = tokens_in, sequences, kv, ask
    entry.work = work
    hold(entry, cost)
    entry.ahead = 0 if behind else flow.work // rate
    entry.priority = BEHIND if behind else account.priority[tier]
    entry.deadline = FAR if behind else now + account.max_wait_ns
    return None


def recall(state: State, request: Request, usage: Usage, bytes_out: int, now: int) -> Refusal | None:
    """Take a request in whose answer is kept, or say why not. All that it counts for is counted.

    It waits for nothing, so no queue is too long for it.
    """
    refusal = known(state, request)
    if refusal is not None:
        return refusal
    account = state.accounts[request.tenant]
    tallies = (account, *state.tallies(account, request))
    refusal = _within_limits(tallies, request, usage.tokens_out, now, waits=False)
    if refusal is None:
        refusal = _over_budget(account, request.tenant, 0, now)
    if refusal is not None:
        return refusal
    for tally in tallies:
        if tally.requests is not None:
            tally.requests.take(1, now)
        if tally.tokens is not None:
            tally.tokens.take(usage.tokens_in + usage.tokens_out, now)
        if tally.bytes is not None:
            tally.bytes.take(request.bytes_in + bytes_out, now)
    return None


def admit_job(state: State, entry: Entry, job: Job, now: int, *, again: bool = False) -> Refusal | None:
    """Take a job in, or say why not. A job is never refused for a long queue of work: it waits as long as it takes.

    `again`: it was taken before.
    """
    refusal = known_job(state, job)
    if refusal is not None:
        return refusal
    account = state.accounts[job.tenant]
    flow = state.flow(job.tenant, account, state.devices[job.pool])
    entry.flow, entry.node = flow, flow.node
    entry.tallies = state.tallies(account, job)
    refusal = size_job(state, entry, job, taken=again)
    for tally in () if again else (account, *entry.tallies):
        refusal = refusal or _queue_full(tally)
    if refusal is not None:
        return refusal
    cost = account.spending.cost(entry.ask * (job.expected_ns or 0), now)
    refusal = None if again else _over_budget(account, job.tenant, cost, now)
    if refusal is not None:
        return refusal
    hold(entry, cost)
    entry.work = entry.ask * sizing.job_ns(job, flow.expected.get(job.app, 0))
    entry.priority = account.priority[job.tier]
    entry.deadline = entry.arrived + account.max_wait_ns
    return None


def resume(state: State, entry: Entry, now: int) -> Refusal | None:
    """Fill in the entry of what runs already, whatever its limits say; or why the policy does not know it."""
    task = entry.task
    account = state.accounts.get(task.tenant)
    if isinstance(task, Job):
        refusal = _known_place(state, task)
        if refusal is not None or account is None:
            return refusal
        entry.flow = flow = state.flow(task.tenant, account, state.devices[task.pool])
        entry.node = flow.node
        entry.tallies = state.tallies(account, task)
        size_job(state, entry, task, taken=True)
        entry.ask = entry.ask or max(1, task.milli_gpu)
        entry.work = entry.ask * sizing.job_ns(task, 0)
    else:
        refusal = known(state, task)
        if refusal is not None or account is None:
            return refusal
        site = state.sites[task.model]
        entry.flow = flow = state.flow(task.tenant, account, site)
        entry.node = flow.node
        entry.tallies = state.tallies(account, task)
        entry.tokens_in, entry.sequences = task.tokens_in, task.sequences
        entry.kv, entry.ask = sizing.shares(task.tokens_in, task.tokens_out_max, task.sequences, site.shape)
        expected = task.sequences * sizing.output_tokens(task.tokens_in, task.tokens_out_max, site.shape, 0)
        entry.work = entry.ask * (INPUT_COST * task.tokens_in + OUTPUT_COST * expected)
        hold(entry, _cost(site, account, entry.work, now))
    behind = isinstance(task, Request) and task.endpoint == LATER
    entry.priority = BEHIND if behind else account.priority.get(task.tier, 0)
    entry.deadline = _deadline(entry, account)
    return None


def answered_in(state: State, request: Request, ahead: int) -> int:
    """In how many nanoseconds one that waits behind all else will probably be answered, with so many before it.

    First what else waits of its tenant, at its guaranteed rate, then those before it, as many at once as that allows.
    """
    site = state.sites.get(request.model)
    flow = None if site is None else site.line.flows.get(request.tenant)
    if site is None or flow is None:
        return RETRY_AFTER_MIN_NS
    _, ask = sizing.shares(request.tokens_in, request.tokens_out_max, request.sequences, site.shape)
    rate = max(flow.node.guaranteed - flow.account.by_jobs, ask)
    rounds = ahead // (rate // ask) + 1
    return max(RETRY_AFTER_MIN_NS, _work_ahead(flow) // rate + rounds * site.runs.expected)


def hold(entry: Entry, amount: int) -> None:
    """So much of its tenant's budget is held for it from now on, instead of what was."""
    spending = entry.flow.account.spending
    spending.held += amount - entry.held
    entry.held = amount


def hold_rest(entry: Entry, now: int) -> None:
    """A job that runs holds what its books do not know of it yet."""
    task = entry.task
    if isinstance(task, Job) and task.expected_ns is not None:
        spending = entry.flow.account.spending
        hold(entry, spending.rest(entry.ask, entry.dispatched, task.expected_ns, now))


def give_back(entry: Entry, now: int) -> None:
    """It was not served after all: nothing of any rate is used by it."""
    for rate, units, _ in entry.taken:
        rate.take(-units, now)
    entry.taken = ()


def used(entry: Entry, tokens: int | None, bytes_out: int, now: int) -> None:
    """So much was sent, and what was reserved of tokens a minute becomes what was used; None: it is not over yet."""
    if tokens is not None:
        for rate, units, are_tokens in entry.taken:
            if are_tokens:
                rate.take(tokens - units, now)
        entry.taken = ()
    for tally in (entry.flow.account, *entry.tallies):
        if tally.bytes is not None:
            tally.bytes.take(bytes_out, now)


def known(state: State, request: Request) -> Refusal | None:
    """Refuse what names something that does not exist (any more), or comes with a key that does not."""
    if request.key in state.revoked:
        return revoked(request.key)
    tenant = state.policy.tenants.get(request.tenant)
    if tenant is None:
        return Refusal(Reason.UNKNOWN_TENANT, f"Tenant {request.tenant} does not exist any more.")
    if request.model not in state.sites or request.model not in state.accounts[tenant.name].models:
        names = ", ".join(state.policy.models_of(tenant)) or "none"
        return Refusal(Reason.UNKNOWN_MODEL, f"Model {request.model} does not exist; {tenant.name} may use: {names}.")
    return _known_tier(request.tier, tenant)


def known_job(state: State, job: Job) -> Refusal | None:
    """As `known`, for jobs: a job runs in its tenant's own pool."""
    refusal = _known_place(state, job)
    return _known_tier(job.tier, state.policy.tenants[job.tenant]) if refusal is None else refusal


def _known_place(state: State, job: Job) -> Refusal | None:
    tenant = state.policy.tenants.get(job.tenant)
    if tenant is None:
        return Refusal(Reason.UNKNOWN_TENANT, f"Tenant {job.tenant} does not exist any more.")
    if job.pool != tenant.pool:
        return Refusal(Reason.UNKNOWN_POOL, f"Pool {job.pool} is not open to {tenant.name}; it may use: {tenant.pool}.")
    return None


def size_job(state: State, entry: Entry, job: Job, *, taken: bool = False) -> Refusal | None:
    """What a job takes of each resource, or why that can never be had.

    One that was taken before is not refused because nodes are away: it is what it was, or, where that is not known, a
    whole GPU for each that it names, until its nodes are there again.
    """
    quotas = state.others[job.pool]
    also = []
    devices = state.devices[job.pool]
    asked = job.milli_gpu
    if (asked < 1 and job.hardware is None) or min(job.resources.values(), default=0) < 0:
        return Refusal(
            Reason.NEVER_FITS,
            f"The job asks for {asked} milli_gpu and {dict(job.resources)}. "
            "Ask for at least 1 milli_gpu, and for nothing below 0.",
        )
    inventory = devices.inventory
    if job.hardware is not None or inventory is not None:
        hardware = job.hardware or Hardware(milli_gpu=asked)
        if inventory is not None:
            footprint = inventory.footprint(hardware, job.resources)
        else:
            footprint = convert(hardware, job.resources, (), job.pool)
        if not isinstance(footprint, str):
            devices.footprints[job.id] = footprint
        elif not taken:
            return Refusal(Reason.NEVER_FITS, footprint)
        known = devices.footprints.get(job.id)
        asked = hardware.milli_gpu or MILLI_PER_GPU * hardware.count if known is None else known.total_milli_gpu
    for resource, amount in job.resources.items():
        quota = quotas.get(resource)
        if quota is not None and amount:
            node = quota.tenants[job.tenant]
            if amount > node.most:
                return _never_fits_job(job, f"{amount} {resource}", node.most)
            also.append((quota, node, amount))
    if asked > entry.node.most:
        return _never_fits_job(job, f"{asked} milli_gpu", entry.node.most)
    entry.ask = asked
    entry.also = tuple(also)
    return _app_never_allows(entry, job, asked)


def _app_never_allows(entry: Entry, job: Job, asked: int) -> Refusal | None:
    held = holds(job, asked)
    for tally in entry.tallies:
        if tally.held_max is not None and any(map(gt, held, tally.held_max)):
            return Refusal(
                Reason.NEVER_FITS,
                f"The job asks for {_amounts(held)}; jobs of {tally.whose} may hold at most "
                f"{_amounts(tally.held_max)} at once (limits.gpus, cpu_cores, memory). Ask for less.",
            )
    return None


def judge(state: State, entry: Entry) -> Refusal | None:
    """Whether what waits may go on waiting under the policy of now; what it takes is worked out anew."""
    task = entry.task
    entry.deadline = _deadline(entry, entry.flow.account)
    if isinstance(task, Job):
        refusal = known_job(state, task)
        entry.node = entry.flow.node
        return size_job(state, entry, task, taken=True) if refusal is None else refusal
    refusal = known(state, task)
    if refusal is not None:
        return refusal
    site = state.sites[task.model]
    entry.kv, entry.ask = sizing.shares(task.tokens_in, task.tokens_out_max, task.sequences, site.shape)
    return never_fits(task, site.shape, entry.kv, entry.ask, entry.flow.node.most)


def expired(entry: Entry, model: str, now: int, *, ready: bool) -> Refusal:
    """Why what has waited past all reason is refused; `ready`: its model has replicas."""
    waited = (now - entry.arrived) / NS_PER_S
    if not ready:
        return Refusal(
            Reason.NO_REPLICA,
            f"No replica of {model} was ready for {waited:.0f} s. Try again later, or ask the operator.",
            RETRY_AFTER_MIN_NS,
        )
    return Refusal(
        Reason.PROMISE,
        f"No capacity came free for tenant {entry.flow.tenant} in {waited:.0f} s, twice its max_wait.",
        RETRY_AFTER_MIN_NS,
    )


def revoked(key: str) -> Refusal:
    """Refuse what comes with a key that was revoked, also where its gateway did not know that yet."""
    return Refusal(Reason.KEY_REVOKED, f"Key {key} is revoked. Use one that is live.")


def never_fits(request: Request, shape: Shape, kv: int, amount: int, cap: int) -> Refusal | None:
    """Refuse at once what no amount of waiting could ever serve."""
    message = None
    if request.sequences < 1:
        message = f"The request asks for {request.sequences} sequences. Ask for at least 1."
    elif request.sequences > shape.slots:
        message = (
            f"The request asks for {request.sequences} sequences at once; a replica of {request.model} runs at most "
            f"{shape.slots}. Ask for fewer."
        )
    elif kv > shape.kv_tokens:
        message = (
            f"The request may need {kv} KV tokens; a replica of {request.model} holds {shape.kv_tokens}. "
            "Shorten the prompt, or set a smaller max_tokens or n."
        )
    elif amount > cap:
        message = (
            f"The request needs {amount} milli_gpu; tenant {request.tenant} can never use more than {cap} at once. "
            "Ask for fewer sequences, or have its elastic_cap raised."
        )
    return Refusal(Reason.NEVER_FITS, message) if message else None


def promise(tenant: str, max_wait_ns: int, wait_ns: int) -> Refusal:
    """Refuse what could not start within max_wait; `wait_ns` is how long its tenant's guarantee takes to come to it."""
    retry_ns = max(RETRY_AFTER_MIN_NS, wait_ns - max_wait_ns)
    return Refusal(
        Reason.PROMISE,
        f"Tenant {tenant} has {wait_ns / NS_PER_S:.1f} s of work waiting at its guaranteed rate; its max_wait is "
        f"{max_wait_ns / NS_PER_S:g} s. Try again in {retry_ns / NS_PER_S:.0f} s.",
        retry_ns,
    )


def _broken(site: Serving, now: int) -> Refusal:
    """Nobody is kept waiting for a model of which no replica can be started, or all fail."""
    if not site.crew.broken:
        until = min(running.breaker.until for running in site.replicas.values() if not running.draining)
        retry_ns = max(RETRY_AFTER_MIN_NS, until - now)
        return Refusal(
            Reason.NO_REPLICA,
            f"Every replica of {site.name} fails; one is tried again in {-(-retry_ns // NS_PER_S)} s. Try again then, "
            "or ask the operator.",
            retry_ns,
        )
    return Refusal(
        Reason.NO_REPLICA,
        f"No replica of {site.name} could be started; it is tried again from time to time. Try again later, or ask the "
        "operator.",
        max(RETRY_AFTER_MIN_NS, site.crew.retry_at - now),
    )


def _flow(state: State, tenant: str, request: Request, tier: str, now: int) -> Flow | Refusal:
    """Where a request waits; a new flow for the first of its tenant and model."""
    site = state.sites.get(request.model)
    flow = site.line.flows.get(tenant) if site is not None else None
    if flow is None or not flow.open or tier not in flow.account.priority:
        refusal = known(state, request)
        if refusal is not None:
            return refusal
        flow = state.flow(tenant, state.accounts[tenant], state.sites[request.model])
    if site is not None and not site.ready and (site.crew.broken or site.failing):
        return _broken(site, now)
    return flow


def _too_late(flow: Flow, site: Serving, tallies: tuple[Tally, ...], rate: int) -> Refusal | None:
    """Whether what comes now could not start within max_wait."""
    account = flow.account
    wait_ns = _work_ahead(flow) // rate + site.runs.expected
    if wait_ns > account.max_wait_ns:
        return promise(flow.tenant, account.max_wait_ns, wait_ns)
    return _promise_of(tallies, account, site.runs.expected) if tallies else None


def _work_ahead(flow: Flow) -> int:
    """The requests of its tenant that wait and may be next, in milli_gpu × ns; they are served before jobs."""
    work = (flow.work if flow.lanes is None else flow.work - flow.idle_work) * flow.room.pace.expected
    for other in flow.others:
        if isinstance(other.room, Serving):
            work += (other.work - other.idle_work) * other.room.pace.expected
    return work


def _deadline(entry: Entry, account: Account) -> int:
    return FAR if entry.priority < 0 else entry.arrived + account.max_wait_ns


def _cost(site: Serving, account: Account, work: int, now: int) -> int:
    """What a request is expected to cost."""
    return account.spending.cost(work * (site.pace.expected or UNKNOWN_PACE_NS), now)


def _known_tier(tier: str, tenant: Tenant) -> Refusal | None:
    if tier in tenant.priority:
        return None
    names = ", ".join(tenant.priority)
    return Refusal(Reason.UNKNOWN_TIER, f"Tier {tier} is unknown to {tenant.name}; it has: {names}.")


def _amounts(held: Held) -> str:
    units = ("milli_gpu", "thousandths of a CPU", "MiB of memory")
    return ", ".join(f"{amount} {unit}" for amount, unit in zip(held, units, strict=True) if 0 < amount < ENDLESS)


def _never_fits_job(job: Job, amount: str, cap: int) -> Refusal:
    return Refusal(
        Reason.NEVER_FITS,
        f"The job needs {amount}; tenant {job.tenant} can never use more than {cap} at once. "
        "Ask for less, or have its elastic_cap raised.",
    )


def _promise_of(tallies: tuple[Tally, ...], account: Account, run_ns: int) -> Refusal | None:
    """Refuse what its app's or key's concurrency would keep for longer than max_wait: so many run at once, each so
    long.
    """
    for tally in tallies:
        at_once = tally.running_max
        if at_once is not None and tally.waiting * run_ns // at_once > account.max_wait_ns:
            return _crowded(tally, at_once, tally.waiting * run_ns // at_once, account.max_wait_ns)
    return None


def _crowded(tally: Tally, at_once: int, wait_ns: int, max_wait_ns: int) -> Refusal:
    retry_ns = max(RETRY_AFTER_MIN_NS, wait_ns - max_wait_ns)
    return Refusal(
        Reason.CONCURRENCY,
        f"{_start(tally)} has {tally.waiting} requests waiting, and its concurrent_requests is {at_once}, which takes "
        f"{duration(wait_ns)}; max_wait is {duration(max_wait_ns)}. Try again in {duration(retry_ns)}.",
        retry_ns,
    )


def _queue_full(tally: Tally) -> Refusal | None:
    if tally.waiting < tally.queue_length:
        return None
    return Refusal(
        Reason.QUEUE_FULL,
        f"{_start(tally)} has {tally.waiting} requests or jobs waiting; its queue_length is {tally.queue_length}. "
        "Try again when some are done.",
        RETRY_AFTER_MIN_NS,
    )


def _within_limits(
    every: tuple[Tally, ...], request: Request, expected: int, now: int, *, waits: bool = True
) -> Refusal | None:
    """Refuse what one of the limits of its tenant, app and key does not allow; of several, the one that takes longest.

    What can never be allowed comes first. `waits`: it may have to wait, for which there has to be room.
    """
    tokens = request.tokens_in + expected
    for tally in every:
        refusal = _too_large(tally, request) or (_queue_full(tally) if waits else None)
        if refusal is not None:
            return refusal
    found: Refusal | None = None
    for tally in every:
        refusal = _within_rates(tally, request, tokens, now)
        if refusal is not None and (found is None or (refusal.retry_after_ns or 0) > (found.retry_after_ns or 0)):
            found = refusal
    return found


def _take(every: tuple[Tally, ...], request: Request, tokens: int, now: int) -> tuple[tuple[Rate, int, bool], ...]:
    """Take what a request needs of every rate that bounds it."""
    taken = []
    for tally in every:
        if tally.requests is not None:
            taken.append((tally.requests, 1, False))
        if tally.tokens is not None:
            taken.append((tally.tokens, min(tokens, tally.tokens.per_minute), True))
        if tally.bytes is not None:
            taken.append((tally.bytes, request.bytes_in, False))
    for rate, units, _ in taken:
        rate.take(units, now)
    return tuple(taken)


def _over_budget(account: Account, tenant: str, cost: int, now: int) -> Refusal | None:
    message = account.spending.refusal(tenant, cost, now)
    return None if message is None else Refusal(Reason.BUDGET, message)


def _too_large(tally: Tally, request: Request) -> Refusal | None:
    """Refuse what is larger than its limits ever allow."""
    tokens_in, most = request.tokens_in, tally.tokens_in_max
    if most is not None and tokens_in > most:
        return Refusal(
            Reason.INPUT,
            f"The prompt has about {tokens_in} tokens; {tally.whose} may send {most} (limits.input). Shorten it.",
        )
    most = tally.tokens_out_max
    silent = request.tokens_out_max is None and request.endpoint in _SILENT
    if most is not None and not silent:
        asked = request.sequences * (request.tokens_out_max or 1)
        if asked > most:
            return Refusal(
                Reason.OUTPUT,
                f"The request asks for {asked} tokens of output; {tally.whose} may have {most} (limits.output). "
                "Set a smaller max_tokens or n.",
            )
    if tally.tokens is not None and tokens_in > tally.tokens.per_minute:
        return Refusal(
            Reason.NEVER_FITS,
            f"The prompt has about {tokens_in} tokens; {tally.whose} may use {tally.tokens.per_minute} a minute "
            "(limits.tokens). Shorten it.",
        )
    return None


def _within_rates(tally: Tally, request: Request, tokens: int, now: int) -> Refusal | None:
    """Refuse what one of the rates does not allow now; of several, the one that takes longest."""
    found: Refusal | None = None
    longest = 0
    rate = tally.requests
    if rate is not None:
        wait_ns = rate.wait_ns(1, now)
        if wait_ns > longest:
            longest = wait_ns
            what = f"{rate.per_minute} requests a minute (limits.requests)"
            found = _used(tally, Reason.REQUESTS_PER_MINUTE, what, wait_ns)
    rate = tally.tokens
    if rate is not None:
        wait_ns = rate.wait_ns(min(tokens, rate.per_minute), now)
        if wait_ns > longest:
            longest = wait_ns
            what = f"{rate.per_minute} tokens a minute (limits.tokens); this needs about {tokens}"
            found = _used(tally, Reason.TOKENS_PER_MINUTE, what, wait_ns)
    rate = tally.bytes
    if rate is not None:
        # What the answer will bring is not known, so it may leave a debt, which refuses the next.
        wait_ns = rate.wait_ns(min(request.bytes_in, rate.per_minute), now)
        if wait_ns > longest:
            what = f"bandwidth of {rate.per_minute // SECONDS_PER_MINUTE} bytes a second (limits.bandwidth)"
            found = _used(tally, Reason.BYTES_PER_SECOND, what, wait_ns)
    return found


def _used(tally: Tally, reason: Reason, what: str, wait_ns: int) -> Refusal:
    return Refusal(reason, f"{_start(tally)} has used its {what}. Try again in {duration(wait_ns)}.", wait_ns)


def _start(tally: Tally) -> str:
    """Whose limits they are, at the start of a sentence."""
    return tally.whose[0].upper() + tally.whose[1:]
