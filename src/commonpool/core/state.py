"""What the machine holds: quota trees, loan books, sites with their lines, and accounts.

`State` only keeps and rebuilds; what changes it is in `tasks`, `supply`, `rules` and `dispatch`, the pictures of it for
people in `views`.
"""

import msgspec

from commonpool.core.devices import Devices
from commonpool.core.events import HostLoad
from commonpool.core.forecast import Forecast
from commonpool.core.inventory import Inventory
from commonpool.core.lending import Loans
from commonpool.core.limits import Tally, app_tally, key_tally
from commonpool.core.model import NO_LIMITS, Job, Limits, Node, Policy, Pool, Replica, Request, Resource, Tenant
from commonpool.core.queueing import Account, Flow, Room
from commonpool.core.quota import Quota
from commonpool.core.sites import Serving, Site


class State:
    """Everything the machine remembers, by name."""

    def __init__(self) -> None:
        self.policy = Policy({}, {}, {}, {}, {}, {})
        self.quotas: dict[str, Quota] = {}  # the trees of milli_gpu, by pool
        self.others: dict[str, dict[Resource, Quota]] = {}  # those of the other resources that a pool counts
        self.loans: dict[str, Loans] = {}
        self.devices: dict[str, Devices] = {}
        self.sites: dict[str, Serving] = {}
        self.sites_of: dict[str, list[Site]] = {}  # by pool: its deployments, then its devices
        self.accounts: dict[str, Account] = {}
        self.forecasts: dict[str, Forecast] = {}  # by tenant
        self.begun = False  # whether what ran before is known, so that replicas may be started
        self.inventories: dict[str, Inventory] = {}  # of the pools whose nodes are known
        self.nodes: dict[str, str] = {}  # the pool of each node
        self.hosts: dict[str, HostLoad] = {}  # how busy each node is; "" is the one of replicas without a node
        self.released: dict[str, int] = {}  # what of its guarantee a tenant has released
        self.grants: dict[str, tuple[int, int]] = {}  # elastic_cap and until when, by tenant
        self.keys: dict[str, Tally] = {}  # of the keys that have limits
        self.revoked: set[str] = set()  # keys

    def configure(self, policy: Policy, now: int) -> None:
        """Take over a policy; what runs goes on where it is."""
        self.policy = policy
        self._configure_pools(policy, now)
        for name, deployment in policy.deployments.items():
            quota, loans = self.quotas[deployment.pool], self.loans[deployment.pool]
            if name in self.sites:
                self.sites[name].configure(deployment, quota, loans)
            else:
                self.sites[name] = Serving(deployment, quota, loans)
        self._sort_sites()
        for tenant in policy.tenants.values():
            self._configure_account(policy, tenant, now)
        for name, account in self.accounts.items():
            if name not in policy.tenants:
                account.models = frozenset()
                for flow in account.flows:
                    flow.open = False

    def _configure_pools(self, policy: Policy, now: int) -> None:
        """The quota trees and the loan books; a pool that is gone is kept until `prune`."""
        for name in policy.pools:
            if name not in self.quotas:
                self.quotas[name] = quota = Quota(name)
                self.loans[name] = loans = Loans(quota)
                self.devices[name] = Devices(quota, loans, self.forecasts)
                self.others[name] = {}
        for name, quota in list(self.quotas.items()):
            quota.configure(policy)
            self.loans[name].reconfigured(now)
            self._configure_others(name, policy)
            if name in policy.pools:
                self._inventory(policy.pools[name])

    def _inventory(self, pool: Pool) -> None:
        """Where the work of a pool whose nodes are known lies."""
        inventory = self.inventories.get(pool.name)
        if inventory is not None:
            inventory.isolate(pool.isolation)
        elif pool.placed:
            self.inventories[pool.name] = self.devices[pool.name].inventory = Inventory(pool.name, pool.isolation)

    def _configure_account(self, policy: Policy, tenant: Tenant, now: int) -> None:
        """A tenant's limits and those of its apps, and its flows' places in the trees."""
        account = self.accounts.get(tenant.name)
        if account is None:
            account = self.accounts[tenant.name] = Account(tenant.name)
        self.forecasts[tenant.name] = account.forecast
        account.models = frozenset(policy.models_of(tenant))
        account.priority, account.max_wait_ns = tenant.priority, tenant.max_wait_ns
        account.spending.configure(tenant.budget, policy.prices.get(tenant.pool), policy.hour_offset_ns)
        account.limit(tenant.limits, now)
        known, account.apps = account.apps, {}
        for app, limits in tenant.apps.items():
            tally = account.apps[app] = known.get(app) or app_tally(tenant.name, app)
            tally.limit(limits, now)
        for flow in account.flows:
            flow.node, flow.weight = self.quotas[tenant.pool].tenants[tenant.name], tenant.weight
            flow.open = flow.room.name in account.models
            self._join_others(flow, flow.room)

    def _configure_others(self, pool: str, policy: Policy) -> None:
        counted = policy.pools[pool].resources if pool in policy.pools else {}
        others = self.others[pool]
        for resource in counted:
            others.setdefault(resource, Quota(pool, resource))
        for resource, quota in list(others.items()):
            quota.configure(policy)
            if resource not in counted and not quota.use:
                del others[resource]

    def prune(self) -> None:
        """Forget deployments, pools and tenants that the policy no longer has, once nothing of theirs runs."""
        for name, site in list(self.sites.items()):
            gone = not (site.replicas or site.crew.starting or site.line.waiting)
            if name not in self.policy.deployments and gone:
                del self.sites[name]
                for flow in site.line.flows.values():
                    flow.account.keep(tuple(other for other in flow.account.flows if other is not flow))
        drawn_on = {site.quota.pool for site in self.sites.values()}
        for name, devices in list(self.devices.items()):
            used = devices.quota.use or devices.by_replicas
            if name not in self.policy.pools and name not in drawn_on and not used:
                for flow in devices.line.flows.values():
                    flow.account.keep(tuple(other for other in flow.account.flows if other is not flow))
                del self.quotas[name], self.others[name], self.loans[name], self.devices[name], self.sites_of[name]
                self.inventories.pop(name, None)
                self.nodes = {node: pool for node, pool in self.nodes.items() if pool != name}
        self._sort_sites()
        kept = {name for quota in self.quotas.values() for name in quota.tenants}
        for name in [name for name in self.accounts if name not in self.policy.tenants and name not in kept]:
            del self.accounts[name], self.forecasts[name]
            for each in self.all_sites():
                each.line.flows.pop(name, None)

    def _sort_sites(self) -> None:
        for name, devices in self.devices.items():
            mine: list[Site] = [site for site in self.sites.values() if site.quota is devices.quota]
            self.sites_of[name] = [*mine, devices]
        self.count_devices()

    def count_devices(self) -> None:
        """What the replicas hold of each pool's devices; after one came or went."""
        for devices in self.devices.values():
            devices.by_replicas = 0
            devices.nowhere.clear()
        for site in self.sites.values():
            for running in site.replicas.values():
                self.devices[running.pool].by_replicas += running.replica.milli_gpu
            for starting in site.crew.starting.values():
                self.devices[starting.pool].by_replicas += starting.replica.milli_gpu

    def see(self, node: Node) -> list[str]:
        """A node is this from now on. Returns the pools whose devices have changed; none where it has none."""
        before = self.nodes.get(node.name)
        if before is not None and before != node.pool:
            self.inventories[before].lose(node.name)
        pool = self.policy.pools.get(node.pool)
        if pool is None:
            return [] if before is None else self.lose(node.name)
        self._inventory(msgspec.structs.replace(pool, placed=True))
        self.inventories[node.pool].see(node)
        self.nodes[node.name] = node.pool
        return [node.pool] if before is None or before == node.pool else [before, node.pool]

    def lose(self, name: str) -> list[str]:
        """A node is gone. As `see`."""
        pool = self.nodes.pop(name, None)
        self.hosts.pop(name, None)
        if pool is None:
            return []
        self.inventories[pool].lose(name)
        return [pool]

    def stray(self, replica: Replica) -> bool:
        """Whether a replica runs on a node that is not there any more."""
        return bool(replica.node) and bool(self.nodes) and replica.node not in self.nodes

    def release(self, tenant: str, milli_gpu: int, now: int) -> None:
        """So much of a tenant's guarantee is the pool's, as far as it is neither reserved nor in use."""
        if milli_gpu > 0:
            self.released[tenant] = milli_gpu
        else:
            self.released.pop(tenant, None)
        pool = self.policy.tenants[tenant].pool
        self.quotas[pool].release(tenant, milli_gpu)
        self.loans[pool].reconfigured(now)

    def limit_key(self, key: str, limits: Limits, now: int) -> None:
        """A key has these limits from now on."""
        if limits == NO_LIMITS:
            self.keys.pop(key, None)
            return
        tally = self.keys.get(key)
        if tally is None:
            tally = self.keys[key] = key_tally(key)
        tally.limit(limits, now)

    def tallies(self, account: Account, task: Request | Job) -> tuple[Tally, ...]:
        """Those of the app and of the key of a task, where they have limits, beside its tenant's account."""
        app = account.apps.get(task.app)
        key = self.keys.get(task.key) if isinstance(task, Request) else None
        if app is None:
            return () if key is None else (key,)
        return (app,) if key is None else (app, key)

    def all_sites(self) -> list[Site]:
        return [*self.sites.values(), *self.devices.values()]

    def flow(self, tenant: str, account: Account, site: Site) -> Flow:
        """The tenant's flow at a site; a new one if need be."""
        flow = site.line.flows.get(tenant)
        if flow is None:
            flow = Flow(tenant, account, site.quota.tenants[tenant], self.policy.tenants[tenant].weight, site)
            self._join_others(flow, site)
            site.line.flows[tenant] = flow
            account.keep((*account.flows, flow))
        return flow

    def _join_others(self, flow: Flow, site: Room) -> None:
        others = self.others.get(flow.node.pool, {}) if isinstance(site, Devices) else {}
        flow.also = tuple(quota.tenants[flow.tenant] for quota in others.values() if flow.tenant in quota.tenants)
