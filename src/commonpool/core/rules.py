"""The rules that people set, and what a new one changes for what waits and runs: a policy, grants, releases, keys."""

from typing import cast

from commonpool.core import admission
from commonpool.core.dispatch import Turns
from commonpool.core.effects import Effect
from commonpool.core.entries import holds
from commonpool.core.events import Granted, KeyLimited, KeyRevoked, Released
from commonpool.core.limits import Tally
from commonpool.core.model import Policy, Request
from commonpool.core.queueing import Flow
from commonpool.core.sites import Site
from commonpool.core.state import State
from commonpool.core.supply import Supply
from commonpool.core.tasks import Tasks


class Rules:
    """Each holds at once. What runs goes on; what waits is judged anew, or looked at again."""

    def __init__(self, state: State, turns: Turns, tasks: Tasks, supply: Supply) -> None:
        self._state = state
        self._turns = turns
        self._tasks = tasks
        self._supply = supply

    # -- a policy ------------------------------------------------------------------------------------------------------

    def reconfigured(self, policy: Policy, now: int, effects: list[Effect]) -> None:
        """What does not fit a policy any more waits no longer; replicas of models that it does not have go."""
        before = self._state.policy
        self._state.configure(policy, now)
        self._carry_over(before, policy, now)
        self._tally_anew(before, policy, now)
        for site in self._state.all_sites():
            for flow in site.line.flows.values():
                if tenant := policy.tenants.get(flow.tenant):
                    flow.repromise(tenant.max_wait_ns)
                for entry in tuple(flow.waiting()):
                    asked = entry.ask
                    refusal = admission.judge(self._state, entry)
                    flow.resize(entry, asked)
                    if refusal is not None:
                        self._tasks.withdraw(entry, refusal, now, effects)
        self._turns.anew(now, effects)
        self._supply.scale(now, effects)
        for site in self._state.sites.values():
            if site.name not in policy.deployments:
                self._supply.follow(site, now, effects)
        self._state.prune()

    def _carry_over(self, before: Policy, policy: Policy, now: int) -> None:
        """What was released and granted goes with its tenant, into another pool too."""
        for name, milli_gpu in list(self._state.released.items()):
            if name not in policy.tenants:
                del self._state.released[name]
            elif policy.tenants[name].pool != before.tenants[name].pool:
                self._state.release(name, milli_gpu, now)
        for name, (elastic_cap, _) in list(self._state.grants.items()):
            if name in policy.tenants:
                self._grant(name, elastic_cap)
            else:
                del self._state.grants[name]

    def _tally_anew(self, before: Policy, policy: Policy, now: int) -> None:
        """Apps have other limits than before: what waits and what runs is counted where it belongs."""
        if any(tenant.apps for tenant in (*before.tenants.values(), *policy.tenants.values())):
            self._count_anew()
        for account in self._state.accounts.values():
            for tally in account.lanes:
                account.turned(tally, now)

    def _count_anew(self) -> None:
        """In the lanes of its app and its key, as far as these have limits."""
        waiting: dict[Flow, dict[str, tuple[Tally, ...]]] = {}
        for entry in self._tasks.entries.values():
            task = entry.task
            tallies = self._state.tallies(entry.flow.account, task)
            if tallies == entry.tallies:
                continue
            if entry.waiting:
                waiting.setdefault(entry.flow, {})[entry.id] = tallies
                continue
            held = holds(task, entry.ask)
            for tally in entry.tallies:
                tally.give(held)
            for tally in tallies:
                tally.take(held)
            entry.tallies = tallies
        for flow, changed in waiting.items():
            flow.sort_anew(changed)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def key_limited(self, event: KeyLimited, now: int, effects: list[Effect]) -> None:
        """What waits in its lane may run now, or must wait."""
        self._state.limit_key(event.key, event.limits, now)
        tally = self._state.keys.get(event.key)
        for account in self._state.accounts.values():
            if tally is not None and tally in account.lanes:
                account.turned(tally, now)
                self._turns.anew(now, effects)

    def key_revoked(self, event: KeyRevoked, now: int, effects: list[Effect]) -> None:
        """Nothing that came with it is begun."""
        self._state.revoked.add(event.key)
        self._state.keys.pop(event.key, None)
        account = self._state.accounts.get(event.tenant)
        if account is None:
            return
        pools: dict[str, None] = {}
        for flow in account.flows:
            for entry in tuple(flow.waiting()):
                if isinstance(entry.task, Request) and entry.task.key == event.key:
                    self._tasks.withdraw(entry, admission.revoked(event.key), now, effects)
                    pools[cast("Site", flow.room).quota.pool] = None
        for pool in pools:
            self._turns.dispatch(pool, now, effects)

    # -- grants and releases -------------------------------------------------------------------------------------------

    def released(self, event: Released, now: int, effects: list[Effect]) -> None:
        """So much of a guarantee is the pool's."""
        if event.tenant not in self._state.policy.tenants:
            return
        self._state.release(event.tenant, event.milli_gpu, now)
        self._turns.anew(now, effects)

    def granted(self, event: Granted, now: int, effects: list[Effect]) -> None:
        """A tenant may use more for a while, or no longer."""
        if event.tenant not in self._state.policy.tenants:
            return
        if event.until > now and event.elastic_cap > 0:
            self._state.grants[event.tenant] = (event.elastic_cap, event.until)
            self._grant(event.tenant, event.elastic_cap)
        else:
            self._state.grants.pop(event.tenant, None)
            self._grant(event.tenant, 0)
        self._turns.anew(now, effects)

    def end_grants(self, now: int) -> None:
        """Those that are over."""
        for tenant, (_, until) in list(self._state.grants.items()):
            if until <= now:
                self._grant(tenant, 0)
                del self._state.grants[tenant]

    def _grant(self, tenant: str, elastic_cap: int) -> None:
        self._state.quotas[self._state.policy.tenants[tenant].pool].grant(tenant, elastic_cap)
