"""What the machine holds: quota trees, loan books, deployments with their lines and replicas, and accounts.

`State` only keeps and rebuilds; the decisions are in `machine`, the pictures of it for people in `views`.
"""

from commonpool.core.lending import Loans
from commonpool.core.limits import Rate
from commonpool.core.model import Deployment, Policy, Replica, Tenant
from commonpool.core.queueing import Entry, Flow, Line, Pace
from commonpool.core.quota import Quota


class Running:
    """A replica and what is taken of it."""

    __slots__ = ("draining", "kv_used", "lost", "replica", "slots_used", "suspect")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.slots_used = 0
        self.kv_used = 0
        self.draining = False
        self.lost = False
        self.suspect = False  # an attempt has just failed there: nothing new until the next tick

    @property
    def open(self) -> bool:
        """Whether it takes new requests."""
        return not (self.draining or self.suspect)


class Site:
    """A deployment with its replicas, its line, and what was learned of its speed."""

    __slots__ = ("deployment", "free_slots", "held", "line", "pace", "quota", "replicas")

    def __init__(self, deployment: Deployment, quota: Quota) -> None:
        self.deployment = deployment
        self.quota = quota
        self.line = Line()
        self.replicas: dict[str, Running] = {}
        self.held = False  # one that needs several slots at once has waited too long: they are kept for it
        self.free_slots = 0  # on replicas that take new requests
        self.pace = Pace()

    def count_free_slots(self) -> None:
        """After a replica came, drained or went."""
        self.free_slots = sum(r.replica.slots - r.slots_used for r in self.replicas.values() if r.open)

    def occupy(self, running: Running, entry: Entry) -> None:
        running.slots_used += entry.request.sequences
        running.kv_used += entry.kv
        self.free_slots -= entry.request.sequences

    def vacate(self, entry: Entry) -> None:
        """A lost replica is kept until the last request on it has ended, so that everything is given back once."""
        running = self.replicas[entry.replica_id]
        running.slots_used -= entry.request.sequences
        running.kv_used -= entry.kv
        if running.open:
            self.free_slots += entry.request.sequences
        elif running.lost:
            self.forget_if_idle(running)

    def doubt(self, replica_id: str) -> None:
        """An attempt failed there. A dead replica frees its slots at once and would eat the whole queue."""
        if running := self.replicas.get(replica_id):
            running.suspect = True
            self.count_free_slots()

    def trust(self) -> None:
        """Give those that failed a moment ago another chance."""
        if any(running.suspect for running in self.replicas.values()):
            for running in self.replicas.values():
                running.suspect = False
            self.count_free_slots()

    def forget_if_idle(self, running: Running) -> None:
        if not running.slots_used:
            del self.replicas[running.replica.id]

    def roomiest(self, entry: Entry) -> Running | None:
        """The replica with most room that can take the request; on a second attempt another one if possible."""
        best: Running | None = None
        best_key = (1, 1.0)
        for running in self.replicas.values():
            replica = running.replica
            slots = running.slots_used + entry.request.sequences
            if not running.open or slots > replica.slots or running.kv_used + entry.kv > replica.kv_tokens:
                continue
            key = (int(replica.id == entry.replica_id), slots / replica.slots)
            if best is None or key < best_key:
                best, best_key = running, key
        return best


class Account:
    """What the machine keeps of a tenant beside its node in the quota tree."""

    __slots__ = ("flows", "models", "requests", "tokens", "waiting")

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.models: frozenset[str] = frozenset()
        self.waiting = 0
        self.requests: Rate | None = None
        self.tokens: Rate | None = None


class State:
    """Everything the machine remembers, by name."""

    def __init__(self) -> None:
        self.policy = Policy({}, {}, {}, {}, {}, {})
        self.quotas: dict[str, Quota] = {}
        self.loans: dict[str, Loans] = {}
        self.sites: dict[str, Site] = {}
        self.accounts: dict[str, Account] = {}

    def configure(self, policy: Policy, now: int) -> None:
        """Take over a policy; what runs goes on where it is."""
        self.policy = policy
        # 1. The quota trees and the loan books; a pool that is gone is kept until nothing runs in it.
        for pool in policy.pools:
            if pool not in self.quotas:
                self.quotas[pool] = Quota(pool)
                self.loans[pool] = Loans(self.quotas[pool])
        for pool, quota in list(self.quotas.items()):
            quota.configure(policy)
            self.loans[pool].reconfigured(now)
            if pool not in policy.pools and not quota.use:
                del self.quotas[pool], self.loans[pool]
        # 2. Deployments; one that is gone keeps its site until `prune`.
        for name, deployment in policy.deployments.items():
            quota = self.quotas[deployment.pool]
            site = self.sites.setdefault(name, Site(deployment, quota))
            site.deployment, site.quota = deployment, quota
        # 3. Accounts, limits and flows.
        for name, tenant in policy.tenants.items():
            account = self.accounts.setdefault(name, Account())
            account.models = frozenset(policy.models_of(tenant))
            account.requests = _rate(account.requests, tenant.limits.requests_per_minute)
            account.tokens = _rate(account.tokens, tenant.limits.tokens_per_minute)
        for name, account in self.accounts.items():
            gone = policy.tenants.get(name)
            for flow in account.flows.values():
                if gone is not None and (node := self.quotas[gone.pool].tenants.get(name)):
                    flow.node, flow.weight = node, gone.weight

    def prune(self) -> None:
        """Forget deployments and tenants that the policy no longer has, once nothing of theirs runs."""
        for name, site in list(self.sites.items()):
            if name not in self.policy.deployments and not site.replicas and not site.line.waiting:
                del self.sites[name]
                for account in self.accounts.values():
                    account.flows.pop(name, None)
        kept = {name for quota in self.quotas.values() for name in quota.tenants}
        for name in [name for name in self.accounts if name not in self.policy.tenants and name not in kept]:
            del self.accounts[name]
            for site in self.sites.values():
                site.line.flows.pop(name, None)

    def flow(self, tenant: Tenant, site: Site) -> Flow:
        account = self.accounts[tenant.name]
        flow = account.flows.get(site.deployment.model)
        if flow is None:
            node = site.quota.tenants[tenant.name]
            flow = Flow(tenant.name, site.deployment.model, node, tenant.weight, site.pace)
            account.flows[flow.model] = site.line.flows[tenant.name] = flow
        return flow


def _rate(rate: Rate | None, per_minute: int | None) -> Rate | None:
    """Keep what is used of a limit that did not change."""
    if per_minute is None:
        return None
    return rate if rate and rate.per_minute == per_minute else Rate(per_minute)
