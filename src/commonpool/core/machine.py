"""The machine: every decision about who runs, in one place. `handle(event, now)` returns effects, in order.

A request takes two calls: `Arrived` (admit, queue, perhaps dispatch) and `Ended` (meter, release, dispatch the next).
After every event the pool is dispatched until nobody who waits may run: no slot stays idle while someone is allowed to
use it, except what is kept for a tenant under its guarantee that waits for more than is free. Nothing that runs is ever
interrupted.

Deterministic: no clock, no randomness, no iteration over sets; the same events give the same effects.
"""

from collections.abc import Callable

import msgspec

from commonpool.core import admission
from commonpool.core.admission import Refusal
from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Settle
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    Ended,
    Event,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Ticked,
)
from commonpool.core.model import (
    NS_PER_S,
    Outcome,
    Policy,
    Reason,
    Replica,
    Request,
    Tenant,
    TokenSource,
    Usage,
    UsageRecord,
)
from commonpool.core.pricing import charged_price
from commonpool.core.queueing import INPUT_COST, LEARN_SHIFT, OUTPUT_COST, Entry, Flow
from commonpool.core.state import Account, Running, Site, State

ATTEMPTS_MAX = 2
Choose = Callable[[int, Callable[[Entry], Running | None]], tuple[Entry, Running] | None]

STATUS_CLIENT_GONE = 499
STATUS_OF: dict[Reason, int] = {
    Reason.NEVER_FITS: 400,
    Reason.UNKNOWN_TIER: 400,
    Reason.UNKNOWN_TENANT: 403,
    Reason.UNKNOWN_MODEL: 404,
    Reason.QUEUE_FULL: 429,
    Reason.PROMISE: 429,
    Reason.REQUESTS_PER_MINUTE: 429,
    Reason.TOKENS_PER_MINUTE: 429,
    Reason.NO_REPLICA: 503,
    Reason.NO_JOURNAL: 503,
}


class Machine:
    """The state of all pools, and what follows from each event."""

    def __init__(self, policy: Policy) -> None:
        self.state = State()
        self.state.configure(policy, 0)
        self._entries: dict[str, Entry] = {}
        self._seq = 0

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take in one event; return what must be done about it. `now` never goes backwards."""
        effects: list[Effect] = []
        match event:
            case Arrived():
                self._arrived(event.request, now, effects)
            case Ended():
                self._ended(event, now, effects)
            case Cancelled(request_id):
                self._cancelled(request_id, now, effects)
            case ReplicaReady(replica):
                self._replica_ready(replica, now, effects)
            case ReplicaDraining(replica_id):
                self._replica_draining(replica_id)
            case ReplicaLost(replica_id):
                self._replica_lost(replica_id)
            case Configured(policy):
                self._reconfigured(policy, now, effects)
            case Ticked():
                self._expire(now, effects)
        return effects

    # -- a request arrives ---------------------------------------------------------------------------------------------

    def _arrived(self, request: Request, now: int, effects: list[Effect]) -> None:
        self._seq += 1
        entry = Entry(request, self._seq, now)
        refusal = self._admit(entry, now)
        if refusal:
            self._refuse(entry, refusal, now, effects)
            return
        self._entries[request.id] = entry
        site = self.state.sites[request.model]
        surplus = entry.flow.node.use >= entry.flow.node.guaranteed
        claimed = surplus and site.quota.claimed
        if not site.line.waiting and not claimed and (running := self._fit(site, entry, now)):
            # Nobody waits and it fits: the queue would only hand it back.
            if surplus:
                site.line.straight_through(entry.flow)
            self._start(site, running, entry, surplus, now, effects)
            return
        self._enqueue(entry)
        self._dispatch(site.quota.pool, now, effects)

    def _admit(self, entry: Entry, now: int) -> Refusal | None:
        """Check everything, then take everything: a refused request has consumed nothing."""
        request = entry.request
        tenant = self.state.policy.tenants.get(request.tenant)
        site = self.state.sites.get(request.model)
        refusal = self._known(request, tenant, site)
        if refusal or tenant is None or site is None:
            return refusal

        # 1. What it would take, and whether that can ever be had.
        account = self.state.accounts[tenant.name]
        flow = self.state.flow(tenant, site)
        entry.flow, entry.node = flow, flow.node
        entry.kv = admission.kv_tokens(request, site.deployment)
        entry.ask = admission.ask(request, site.deployment, entry.kv)
        refusal = admission.never_fits(request, site.deployment, entry.kv, entry.ask, flow.node.most)
        if refusal:
            return refusal

        # 2. Limits, all of them before any is taken.
        expected = admission.output_tokens(request, site.deployment, flow.output_tokens)
        tokens = request.tokens_in + request.sequences * expected
        refusal = self._within_limits(tenant, account, request, tokens, now)
        if refusal:
            return refusal

        # 3. The promise.
        rate = max(flow.node.guaranteed, entry.ask)
        work_ahead = sum(f.work * self.state.sites[f.model].pace.expected for f in account.flows.values())
        refusal = admission.promise(tenant, work_ahead, rate)
        if refusal:
            return refusal

        # 4. Take.
        if account.requests:
            account.requests.take(1, now)
        if account.tokens:
            entry.tokens_reserved = min(tokens, account.tokens.per_minute)
            account.tokens.take(entry.tokens_reserved, now)
        entry.work = entry.ask * (INPUT_COST * request.tokens_in + OUTPUT_COST * request.sequences * expected)
        entry.ahead = flow.work // rate
        entry.priority = tenant.priority[request.tier]
        entry.deadline = now + tenant.max_wait_ns
        return None

    def _known(self, request: Request, tenant: Tenant | None, site: Site | None) -> Refusal | None:
        if tenant is None:
            return Refusal(Reason.UNKNOWN_TENANT, f"Tenant {request.tenant} does not exist any more.")
        if site is None or request.model not in self.state.accounts[tenant.name].models:
            names = ", ".join(self.state.policy.models_of(tenant)) or "none"
            return Refusal(
                Reason.UNKNOWN_MODEL, f"Model {request.model} does not exist; {tenant.name} may use: {names}."
            )
        if request.tier not in tenant.priority:
            names = ", ".join(tenant.priority)
            return Refusal(Reason.UNKNOWN_TIER, f"Tier {request.tier} is unknown to {tenant.name}; it has: {names}.")
        return None

    def _within_limits(
        self, tenant: Tenant, account: Account, request: Request, tokens: int, now: int
    ) -> Refusal | None:
        limits = tenant.limits
        if account.waiting >= limits.queue_length:
            return Refusal(
                Reason.QUEUE_FULL,
                f"Tenant {tenant.name} has {account.waiting} requests waiting; its queue_length is "
                f"{limits.queue_length}. Try again when some are done.",
                admission.RETRY_AFTER_MIN_NS,
            )
        if account.requests and (wait_ns := account.requests.wait_ns(1, now)):
            return Refusal(
                Reason.REQUESTS_PER_MINUTE,
                f"Tenant {tenant.name} has used its {limits.requests_per_minute} requests a minute.",
                wait_ns,
            )
        if account.tokens:
            most = account.tokens.per_minute
            if request.tokens_in > most:
                return Refusal(
                    Reason.NEVER_FITS,
                    f"The prompt has about {request.tokens_in} tokens; tenant {tenant.name} may use {most} a minute. "
                    "Shorten it.",
                )
            if wait_ns := account.tokens.wait_ns(min(tokens, most), now):
                return Refusal(
                    Reason.TOKENS_PER_MINUTE, f"Tenant {tenant.name} has used its {most} tokens a minute.", wait_ns
                )
        return None

    def _enqueue(self, entry: Entry) -> None:
        flow = entry.flow
        account = self.state.accounts[flow.tenant]
        account.waiting += 1
        flow.push(entry)
        flow.parked = False
        line = self.state.sites[flow.model].line
        line.waiting += 1
        line.place(flow)

    def _unqueue(self, entry: Entry) -> None:
        flow = entry.flow
        account = self.state.accounts[flow.tenant]
        account.waiting -= 1
        flow.remove(entry)
        self.state.sites[flow.model].line.waiting -= 1

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def _dispatch(self, pool: str, now: int, effects: list[Effect]) -> None:
        """Give out what is free in a pool, until nobody who waits may run.

        1. Tenants under their guarantee, at every deployment. 2. The surplus, unless one of the first waits for room in
        the pool: then what frees next is earmarked for it, and nothing more is lent.
        """
        sites = [site for site in self.state.sites.values() if site.line.waiting and site.quota.pool == pool]
        if not sites:
            self.state.quotas[pool].claimed = False
            return
        quota = sites[0].quota
        quota.claimed = False
        for site in sites:
            self._serve(site, site.line.next_within, now, effects, surplus=False)
        for site in sites:
            if not quota.claimed:
                self._serve(site, site.line.next_beyond, now, effects, surplus=True)

    def _serve(self, site: Site, choose: Choose, now: int, effects: list[Effect], *, surplus: bool) -> None:
        """Dispatch those that `choose` finds at one deployment, one at a time."""
        site.held = site.held and surplus

        def fit(entry: Entry) -> Running | None:
            return self._fit(site, entry, now)

        while site.line.waiting and site.free_slots > 0 and not site.held:
            found = choose(now, fit)
            if found is None:
                return
            entry, running = found
            self._unqueue(entry)
            self._start(site, running, entry, surplus, now, effects)

    def _fit(self, site: Site, entry: Entry, now: int) -> Running | None:
        """Where a request can run at once. Without room on its tenant's own path its flow is parked there."""
        flow = entry.flow
        if site.free_slots <= 0 or site.held:
            return None
        blocker = site.quota.blocker(flow.node, entry.ask)
        if blocker:
            if len(flow):
                blocker.waiters[flow] = None
                site.line.park(flow)
            return None
        within = flow.node.use < flow.node.guaranteed
        if site.quota.free_for(flow.node) < entry.ask:
            site.quota.claimed = site.quota.claimed or within
            return None
        place = site.roomiest(entry)
        if place is None and within and entry.deadline <= now:
            site.held = True  # it needs several slots of one replica at once, and has waited long enough for them
        return place

    def _start(
        self, site: Site, running: Running, entry: Entry, surplus: bool, now: int, effects: list[Effect]
    ) -> None:
        request, flow = entry.request, entry.flow
        entry.node = flow.node
        entry.version = site.deployment.version
        entry.attempt += 1
        entry.dispatched = now
        entry.replica_id = running.replica.id
        site.occupy(running, entry)
        site.quota.take(flow.node, entry.ask)
        self.state.loans[site.quota.pool].took(flow.node, entry, entry.ask, now)
        entry.surplus = surplus
        if surplus:
            expected = admission.output_tokens(request, site.deployment, flow.output_tokens)
            entry.charged = flow.charge(request.tokens_in, request.sequences * expected)
        self._replace(flow.tenant)
        if surplus:
            site.line.served(flow)
        effects.append(Dispatch(entry.id, entry.attempt, entry.replica_id, now - entry.arrived))

    def _replace(self, tenant: str) -> None:
        """A tenant's use changed, and with it the place of each of its flows."""
        for flow in self.state.accounts[tenant].flows.values():
            line = self.state.sites[flow.model].line
            if line.waiting or flow.contesting:
                line.place(flow)

    # -- a request ends ------------------------------------------------------------------------------------------------

    def _ended(self, event: Ended, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(event.request_id)
        if entry is None or entry.waiting or entry.attempt != event.attempt:
            return
        site = self.state.sites[entry.request.model]
        usage = self._measured(site, entry, event, now)
        if event.outcome is Outcome.COMPLETED:
            self._learn(site, entry, usage, now)

        # 1. Give back what it held; its loans end.
        site.vacate(entry)
        if event.retry:
            site.doubt(entry.replica_id)
        pool = entry.node.pool
        freed = self.state.quotas[pool].give(entry.node, entry.ask)
        self.state.loans[pool].gave(entry.node, entry, now)

        # 2. Correct what was charged in advance, then put the tenant's flows where they belong now.
        if entry.surplus:
            entry.flow.recharge(entry.charged, usage.tokens_in, usage.tokens_out)
        again = self._again(entry) if event.retry else None
        self._settle_limits(entry, usage.tokens_in + usage.tokens_out, now)
        self._replace(entry.flow.tenant)

        # 3. The record.
        effects.append(Settle(self._record(entry, site, event, usage, now)))

        # 4. Another attempt, or the end.
        if again:
            self._entries[event.request_id] = again
            self._enqueue(again)
        else:
            del self._entries[event.request_id]
            if event.retry:
                effects.append(Fail(event.request_id))

        # 5. Who waited for this. A model that has moved frees slots in one pool and quota in another.
        for flow in freed:
            self._unpark(flow)
        self._dispatch(pool, now, effects)
        if site.quota.pool != pool:
            self._dispatch(site.quota.pool, now, effects)

    def _again(self, entry: Entry) -> Entry | None:
        """The next attempt, if one is left and the policy, which may have changed, still has room for it."""
        again = entry.again()
        if entry.attempt >= ATTEMPTS_MAX or self._judge(again):
            return None
        again.tokens_reserved, entry.tokens_reserved = entry.tokens_reserved, 0
        return again

    def _settle_limits(self, entry: Entry, tokens_used: int, now: int) -> None:
        """What was reserved of the tokens a minute becomes what was used."""
        account = self.state.accounts[entry.flow.tenant]
        if account.tokens and entry.tokens_reserved:
            account.tokens.take(tokens_used - entry.tokens_reserved, now)
        entry.tokens_reserved = 0

    def _unpark(self, flow: object) -> None:
        if isinstance(flow, Flow) and flow.parked:
            flow.parked = False
            self.state.sites[flow.model].line.place(flow)

    def _measured(self, site: Site, entry: Entry, event: Ended, now: int) -> Usage:
        """The tokens to record. Work that failed has none; work cut before its engine told is estimated by its time."""
        if event.outcome is Outcome.FAILED:
            return Usage(source=event.usage.source)
        usage = event.usage
        if event.outcome is Outcome.CANCELLED and usage.source is TokenSource.ESTIMATED and site.pace.expected:
            served = (now - entry.dispatched) // site.pace.expected - INPUT_COST * usage.tokens_in
            most = entry.request.sequences * site.deployment.context_tokens
            return msgspec.structs.replace(usage, tokens_out=min(most, max(0, served // OUTPUT_COST)))
        return usage

    def _learn(self, site: Site, entry: Entry, usage: Usage, now: int) -> None:
        """What a request of this flow produces, and how long this deployment takes over a token of service."""
        service = INPUT_COST * usage.tokens_in + OUTPUT_COST * usage.tokens_out
        if not service:
            return
        site.pace.learn((now - entry.dispatched) // service)
        produced = max(1, usage.tokens_out // entry.request.sequences)
        entry.flow.output_tokens = _towards(entry.flow.output_tokens, produced)

    # -- a request does not run ----------------------------------------------------------------------------------------

    def _cancelled(self, request_id: str, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(request_id)
        if entry is None or not entry.waiting:
            return
        self._drop(entry, now)
        site = self.state.sites[entry.request.model]
        gone = Ended(request_id, entry.attempt + 1, Outcome.CANCELLED, Usage(), STATUS_CLIENT_GONE)
        effects.append(Settle(self._record(entry, site, gone, gone.usage, now)))
        self._dispatch(site.quota.pool, now, effects)

    def _refuse(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        request = entry.request
        effects.append(Refuse(request.id, refusal.reason, refusal.message, refusal.retry_after_ns))
        site = self.state.sites.get(request.model)
        if site and request.tenant in self.state.accounts:
            end = Ended(request.id, entry.attempt + 1, Outcome.REFUSED, Usage(), STATUS_OF[refusal.reason])
            effects.append(Settle(self._record(entry, site, end, end.usage, now, refusal.reason)))

    def _drop(self, entry: Entry, now: int) -> None:
        """It waits no more and will not run; who is behind it is looked at anew."""
        self._unqueue(entry)
        self._settle_limits(entry, 0, now)
        entry.flow.parked = False
        self.state.sites[entry.flow.model].line.place(entry.flow)
        del self._entries[entry.id]

    def _withdraw(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Refuse what had been taken: like any refused request it has consumed nothing."""
        self._drop(entry, now)
        account = self.state.accounts[entry.flow.tenant]
        if account.requests:
            account.requests.take(-1, now)
        self._refuse(entry, refusal, now, effects)

    def _expire(self, now: int, effects: list[Effect]) -> None:
        """Refuse what has waited past all reason: past max_wait without a replica, or twice max_wait with one."""
        for site in self.state.sites.values():
            site.trust()
            ready = any(not running.draining for running in site.replicas.values())
            for flow in site.line.flows.values():
                self._unpark(flow)  # with time another request may have come to its head, one that fits
                while len(flow):
                    entry = flow.earliest()
                    patience = 0 if not ready else entry.deadline - entry.arrived
                    if entry.deadline + patience > now:
                        break
                    self._withdraw(entry, _expired(entry, now, ready=ready), now, effects)
        for pool in self.state.quotas:
            self._dispatch(pool, now, effects)

    def _record(self, entry: Entry, site: Site, event: Ended, usage: Usage, now: int, reason: str = "") -> UsageRecord:
        request = entry.request
        ran = event.attempt == entry.attempt  # else it ended before this attempt was dispatched
        run_ns = now - entry.dispatched if ran else 0
        pool = entry.node.pool if ran else site.quota.pool
        price = self.state.policy.prices.get(pool)
        # By position, in the order of the fields: by name it takes ten times as long, for every request.
        return UsageRecord(
            request.id,
            event.attempt,
            request.tenant,
            request.app,
            request.cost_center,
            request.model,
            entry.version if ran else site.deployment.version,
            request.tier,
            request.endpoint,
            request.stream,
            pool,
            entry.replica_id if ran else "",
            event.outcome,
            event.status,
            reason,
            entry.arrived,
            (entry.dispatched if ran else now) - entry.arrived,
            event.first_token_at - entry.arrived if event.first_token_at else 0,
            now - entry.arrived,
            run_ns,
            usage.tokens_in,
            usage.tokens_cached,
            usage.tokens_out,
            usage.source,
            entry.ask if ran else 0,
            entry.ask * run_ns if ran else 0,
            charged_price(event.outcome, price.micro_per_gpu_hour) if price else 0,
            tuple(entry.ended_loans),
        )

    # -- replicas ------------------------------------------------------------------------------------------------------

    def _replica_ready(self, replica: Replica, now: int, effects: list[Effect]) -> None:
        site = self.state.sites.get(replica.model)
        if site is None:
            return
        site.replicas[replica.id] = Running(replica)
        site.count_free_slots()
        self._dispatch(site.quota.pool, now, effects)

    def _replica_draining(self, replica_id: str) -> None:
        for site in self.state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = True
                site.count_free_slots()

    def _replica_lost(self, replica_id: str) -> None:
        for site in self.state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = running.lost = True
                site.forget_if_idle(running)
                site.count_free_slots()

    # -- a new policy --------------------------------------------------------------------------------------------------

    def _reconfigured(self, policy: Policy, now: int, effects: list[Effect]) -> None:
        self.state.configure(policy, now)
        for site in self.state.sites.values():
            for flow in site.line.flows.values():
                for entry in tuple(flow.waiting()):
                    refusal = self._judge(entry)
                    if refusal:
                        self._withdraw(entry, refusal, now, effects)
                flow.parked = False
                site.line.place(flow)
        self.state.prune()
        for pool in self.state.quotas:
            self._dispatch(pool, now, effects)

    def _judge(self, entry: Entry) -> Refusal | None:
        """Whether a request that waits may go on waiting under the new policy; its share is worked out anew."""
        request = entry.request
        tenant = self.state.policy.tenants.get(request.tenant)
        site = self.state.sites.get(request.model)
        refusal = self._known(request, tenant, site)
        if refusal or tenant is None or site is None:
            return refusal
        entry.kv = admission.kv_tokens(request, site.deployment)
        entry.ask = admission.ask(request, site.deployment, entry.kv)
        return admission.never_fits(request, site.deployment, entry.kv, entry.ask, entry.flow.node.most)


def _towards(value: int, seen: int) -> int:
    return value + ((seen - value) >> LEARN_SHIFT) if value else max(1, seen)


def _expired(entry: Entry, now: int, *, ready: bool) -> Refusal:
    waited = (now - entry.arrived) / NS_PER_S
    if not ready:
        return Refusal(
            Reason.NO_REPLICA,
            f"No replica of {entry.request.model} was ready for {waited:.0f} s. Try again later, or ask the operator.",
            admission.RETRY_AFTER_MIN_NS,
        )
    return Refusal(
        Reason.PROMISE,
        f"No capacity came free for tenant {entry.request.tenant} in {waited:.0f} s, twice its max_wait.",
        admission.RETRY_AFTER_MIN_NS,
    )
