"""From what the core holds to what is measured at a scrape. Reads only; what it gives is plain numbers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from commonpool.core import pictures, views
from commonpool.core.breaker import Circuit
from commonpool.core.model import MILLI_PER_GPU, NS_PER_S
from commonpool.core.state import State
from commonpool.core.underuse import Underuse
from commonpool.observe.exposition import Family, Labels
from commonpool.observe.metrics import OTHER

PAIRS_MAX: Final = 1000  # of lender and borrower; the rest are both `other`
_PERMILLE: Final = 1000
_BYTES_PER_MIB: Final = 1024 * 1024

T = TypeVar("T")


def families(state: State, now: int, underused: Iterable[Underuse]) -> Iterator[Family]:
    """All of the core at `now`; `underused` are the tenants whose guarantees are."""
    yield from _tenants(state, underused)
    yield from _queues(state, now)
    yield from _loans(state)
    yield from _budgets(state, now)
    yield from _tiers(state)
    yield from _pools(state)
    yield from _models(state)
    yield from _circuits(state)
    yield from _nodes(state)
    yield from _devices(state)


def gauge(name: str, text: str, labels: Labels, values: Iterable[T], pick: Callable[[T], float]) -> Family:
    """A family of one value for each of these, which have their labels as attributes."""
    return Family(
        name, "gauge", text, labels, [(tuple(getattr(each, key) for key in labels), pick(each)) for each in values]
    )


def _tenants(state: State, underused: Iterable[Underuse]) -> Iterator[Family]:
    found = views.tenants(state)
    jobs = {each.tenant: each for each in pictures.jobs(state)}
    waiting_jobs = {name: each.waiting for name, each in jobs.items()}
    tenant = ("tenant",)

    def gpus(name: str, text: str, pick: Callable[[views.TenantView], int]) -> Family:
        return gauge(f"tenant_{name}_gpus", text, tenant, found, lambda view: pick(view) / MILLI_PER_GPU)

    yield gpus("guaranteed", "GPUs it can always have back.", lambda view: view.guaranteed)
    yield gpus("elastic_cap", "Most GPUs it may use now.", lambda view: view.elastic_cap)
    yield gpus("in_use", "GPUs its work uses.", lambda view: view.in_use)
    yield gpus("lent", "GPUs of its guarantee that others use.", lambda view: view.lent)
    yield gpus("borrowed", "GPUs it uses above its guarantee.", lambda view: view.borrowed)
    yield gpus("due", "GPUs it has lent and needs back: work of its own waits.", lambda view: view.due)
    yield gauge(
        "tenant_waiting_requests",
        "Requests in its queue.",
        tenant,
        found,
        lambda view: view.waiting - waiting_jobs.get(view.tenant, 0),
    )
    yield gauge(
        "tenant_waiting_jobs", "Jobs in its queue.", tenant, found, lambda view: waiting_jobs.get(view.tenant, 0)
    )
    held = {name: each.running_milli_gpu for name, each in jobs.items()}
    yield gpus("job", "GPUs that its jobs hold.", lambda view: held.get(view.tenant, 0))
    offered = {each.tenant: each.offered_milli_gpu for each in underused}
    yield gpus("underused", "Unused for days; could be released.", lambda view: offered.get(view.tenant, 0))
    longest = [((name,), each.max_wait_ns / NS_PER_S) for name, each in state.policy.tenants.items()]
    yield Family("tenant_max_wait_seconds", "gauge", "Longest that a request of it should wait.", tenant, longest)


def _queues(state: State, now: int) -> Iterator[Family]:
    """Of each (tenant, model) in whose queue something is, or was."""
    lengths, waits = [], []
    for model, site in state.sites.items():
        for tenant, flow in site.line.flows.items():
            oldest = [each.arrived for lane in flow.every() if (each := lane.oldest) is not None]
            lengths.append(((tenant, model), flow.length))
            waits.append(((tenant, model), (now - min(oldest)) / NS_PER_S if oldest else 0.0))
    labels = ("tenant", "model")
    yield Family("waiting_requests", "gauge", "Requests that wait for a model.", labels, lengths)
    yield Family("oldest_wait_seconds", "gauge", "How long the one has waited that waits longest.", labels, waits)


def _loans(state: State) -> Iterator[Family]:
    """Whose GPUs who has; lender "" is the pool's unowned part."""
    sums: dict[Labels, int] = {}
    for loan in views.loans(state):
        pair = (loan.lender, loan.borrower)
        if pair not in sums and len(sums) >= PAIRS_MAX:
            pair = (OTHER, OTHER)
        sums[pair] = sums.get(pair, 0) + loan.milli_gpu
    samples = [(pair, milli_gpu / MILLI_PER_GPU) for pair, milli_gpu in sums.items()]
    yield Family("loaned_gpus", "gauge", "GPUs on loan, by whose they are.", ("lender", "borrower"), samples)


def _budgets(state: State, now: int) -> Iterator[Family]:
    found = {name: view for name in state.policy.tenants if (view := views.budget(state, name, now)) is not None}
    tables: tuple[tuple[str, str, Callable[[views.BudgetView], int]], ...] = (
        ("micro", "Its budget of the month, in millionths of the currency.", lambda view: view.limit),
        ("spent_micro", "Spent of it so far.", lambda view: view.spent),
        ("held_micro", "Expected of what is open.", lambda view: view.held),
        ("soft", "1 where so much is spent that its people are warned.", lambda view: int(view.soft)),
    )
    for name, text, pick in tables:
        samples = [((tenant,), pick(view)) for tenant, view in found.items()]
        yield Family(f"tenant_budget_{name}", "gauge", text, ("tenant",), samples)


def _tiers(state: State) -> Iterator[Family]:
    """The targets of those tiers that have one."""
    tiers = state.policy.tiers.values()
    waits = [((tier.name,), ns / NS_PER_S) for tier in tiers if (ns := tier.queue_target_ns) is not None]
    yield Family("tier_queue_target_seconds", "gauge", "How long a request may wait.", ("tier",), waits)
    firsts = [((tier.name,), ns / NS_PER_S) for tier in tiers if (ns := tier.first_token_target_ns) is not None]
    yield Family("tier_first_token_target_seconds", "gauge", "How long the first token may take.", ("tier",), firsts)


def _pools(state: State) -> Iterator[Family]:
    pool, found = ("pool",), pictures.devices(state)
    tables: tuple[tuple[str, str, Callable[[pictures.PoolDevices], int]], ...] = (
        ("capacity", "GPUs that are there and healthy.", lambda each: each.capacity_milli_gpu),
        ("free", "GPUs that nobody holds.", lambda each: each.free_milli_gpu),
        ("fragmented", "Free, and of no use.", lambda each: each.fragmented_milli_gpu),
    )
    for name, text, pick in tables:
        samples = [((each.pool,), pick(each) / MILLI_PER_GPU) for each in found]
        yield Family(f"pool_{name}_gpus", "gauge", text, pool, samples)
    text = "1 where the guarantees exceed the capacity."
    yield gauge("pool_scaled", text, pool, views.pools(state), lambda view: int(view.scaled))


def _models(state: State) -> Iterator[Family]:
    model, found = ("model",), views.models(state)
    yield gauge("model_wanted_replicas", "Replicas it should have.", model, found, lambda view: view.wanted)
    yield gauge("model_ready_replicas", "Replicas that are ready.", model, found, lambda view: view.ready)
    yield gauge("model_starting_replicas", "Replicas that start.", model, found, lambda view: view.starting)
    failures = [((view.model,), state.sites[view.model].crew.failures) for view in found]
    yield Family("model_failed_starts", "gauge", "Starts failed since the last good.", model, failures)


def _circuits(state: State) -> Iterator[Family]:
    """Of the circuits a replica may have, 1 for the one that it has."""
    replicas = [
        (each.id, model, each.breaker.circuit) for model, s in state.sites.items() for each in s.replicas.values()
    ]
    samples = [((id_, model, str(each)), int(each is its)) for id_, model, its in replicas for each in Circuit]
    text = "1 for what a replica gets: closed is requests, open nothing new, half_open one at a time."
    yield Family("replica_circuit", "gauge", text, ("replica", "model", "circuit"), samples)


def _nodes(state: State) -> Iterator[Family]:
    """How busy the nodes are that tell; "" is the one of what runs on no known node."""
    tables: Mapping[str, str] = {"cpu": "CPU time", "memory": "memory", "network": "busiest network interface"}
    for resource, what in tables.items():
        samples = [((name,), getattr(load, resource) / _PERMILLE) for name, load in state.hosts.items()]
        yield Family(f"node_{resource}_ratio", "gauge", f"How much of its {what} a node uses.", ("node",), samples)


def _devices(state: State) -> Iterator[Family]:
    """Of each device what is given out of it and, where its hardware says so, how busy it is."""
    held: list[tuple[Labels, float]] = []
    busy: list[tuple[Labels, float]] = []
    used: list[tuple[Labels, float]] = []
    for inventory in state.inventories.values():
        for node in inventory.nodes():
            load = state.hosts.get(node.name)
            loads = {} if load is None else {f"{node.name}/{each.device}": each for each in load.devices}
            for device in node.devices:
                labels = (node.name, device.id)
                parts = inventory.holders(device.id).values()
                held.append((labels, sum(part.milli_gpu for part in parts) / MILLI_PER_GPU))
                seen = loads.get(device.id)
                if seen is not None and seen.busy is not None:
                    busy.append((labels, seen.busy / _PERMILLE))
                if seen is not None and seen.used_mib is not None:
                    used.append((labels, seen.used_mib * _BYTES_PER_MIB))
    of = ("node", "device")
    yield Family("device_held_gpus", "gauge", "What replicas and jobs were given of a device.", of, held)
    yield Family("device_busy_ratio", "gauge", "How much of the time a device works, as its driver says.", of, busy)
    yield Family("device_used_memory_bytes", "gauge", "Memory in use on a device, as its driver says.", of, used)
