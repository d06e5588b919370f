"""A store with a month of work in it, its hours closed as the product closes them: what the console has to show.

Every figure of request n follows from n. They come evenly; one in eight is borrowed, one in fifty refused, one in a
hundred failed, and as many were left by their clients.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from commonpool.config import Config
from commonpool.config.billing import rates
from commonpool.control.books import hour_from
from commonpool.control.reconciling import compare
from commonpool.core.closing import close
from commonpool.core.ledger import Phase, Span, Standing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Loan, LoanEnd, Outcome, TokenSource, UsageRecord
from commonpool.store.contract import Store
from commonpool.store.ledger import Closing

POOL = "main"
MODELS = ("chat", "code")
APPS = ("assistant", "search")
TIERS = ("interactive", "batch")
BATCH = 20_000
NODE_GPUS = 8


class World(msgspec.Struct, frozen=True):
    """How much there is: the tenants with what each is guaranteed, and requests over whole hours until `until_ns`."""

    tenants: Sequence[tuple[str, int]]
    nodes: int
    requests: int
    hours: int
    until_ns: int
    used_percent: int = 30

    @property
    def gpus(self) -> int:
        return NODE_GPUS * self.nodes

    @property
    def start_ns(self) -> int:
        return self.until_ns - self.hours * NS_PER_HOUR


def configuration(world: World, engine: str, more: str = "") -> str:
    """The configuration of such a pool, whose replicas all answer at `engine`; `more` is added."""
    models = []
    for at, model in enumerate(MODELS):
        urls = ", ".join(f'"{engine}/{model}{node}"' for node in range(world.nodes))
        devices = ", ".join(f"node-{node + 1}/{at}" for node in range(world.nodes))
        models.append(
            f'  {model}: {{version: "1", gpu: 1_gpu, slots: 8, context: 8Ki,'
            f" engine: {{kind: attached, urls: [{urls}], devices: [{devices}]}}}}"
        )
    tenants = [
        f"  {name}:\n    tenant: {{guaranteed: {gpus}_gpu, elastic_cap: {4 * gpus}_gpu}}\n"
        "    queue: {priority: {interactive: 9, batch: 3}, max_wait: 600s}\n"
        f"    apps: {{{', '.join(f'{app}: {{cost_center: CC-{1000 + at}}}' for app in APPS)}}}"
        for at, (name, gpus) in enumerate(world.tenants)
    ]
    return "\n".join(
        [
            "nodes:",
            *(
                f"  node-{node + 1}: {{gpus: {NODE_GPUS}, gpu_model: H100, gpu_memory: 80GiB, links: all}}"
                for node in range(world.nodes)
            ),
            "pools: {main: {}}",
            "models:",
            *models,
            "prices: {currency: EUR, gpu_hour: {main: 2.50}, meters: {million_tokens_out: 0.10, request: 0.0001}}",
            "costs:",
            "  - {name: machine room, layer: infrastructure, month: 4000, split: guaranteed}",
            "  - {name: platform team, layer: operation, month: 6000, split: uniform}",
            "tiers:",
            "  interactive: {queue_target: 2s, first_token_target: 3s}",
            "  batch: {queue_target: 120s}",
            "tenants:",
            *tenants,
            more,
        ]
    )


def fill(store: Store, config: Config, world: World) -> None:
    """Put the month into the store and close its hours. Raises RuntimeError where an hour's books do not close."""
    store.add_meters(_notes(world))
    made = _records(world)
    while batch := list(islice(made, BATCH)):
        store.add_usage(batch)
    for hour in range(world.hours):
        start = world.start_ns + hour * NS_PER_HOUR
        for pool in (POOL, ""):
            work = store.hour_work(pool, start)
            found = hour_from(work, store.last_standing(pool, start), rates(config, pool, start))
            postings = close(found)
            books = compare(found, postings).reconciliation
            if books.charged != books.devices:
                raise RuntimeError(f"the books of the hour from {start} do not close: {books}")
            store.close_hour(Closing(pool, start, postings, books, work))


def _notes(world: World) -> Iterator[Standing | Span]:
    """What the pool had, and what its replicas held."""
    guaranteed = {f"tenant:{name}": 1000 * gpus for name, gpus in world.tenants}
    for start in range(world.start_ns, world.until_ns, NS_PER_HOUR):
        end = start + NS_PER_HOUR
        yield Standing(POOL, start, end, 1000 * world.gpus, guaranteed)
        for number in range(world.gpus):
            for phase in (Phase.SERVING, Phase.HELD):
                yield Span(f"r-{number}", phase, POOL, MODELS[number % 2], "platform", 1000, start, end)


def _records(world: World) -> Iterator[UsageRecord]:
    milli_gpu = 500
    capacity_s = world.gpus * world.hours * 3600 * world.used_percent // 100
    run_ns = max(NS_PER_S, capacity_s * NS_PER_S * 1000 // milli_gpu // world.requests)
    step_ns = world.hours * NS_PER_HOUR // world.requests
    for n in range(world.requests):
        yield _record(world, n, world.start_ns + n * step_ns, milli_gpu, run_ns)


def _record(world: World, n: int, arrived_ns: int, milli_gpu: int, usual_ns: int) -> UsageRecord:
    k = (n * 2654435761) % 1048576
    tenant, _ = world.tenants[k % len(world.tenants)]
    tier = (k // 7) % 2
    request_id = f"{(n // 2_000_000 + 1) * 6364136223846793:016x}-{n % 2_000_000 + 1:x}"
    wait_ns = (k % 997) ** 2 * (400 if tier == 0 else 20_000)
    run_ns = usual_ns // 2 + usual_ns * (k % 101) // 100
    outcome, status, reason = Outcome.COMPLETED, 200, ""
    if k % 50 == 0:
        outcome, status, reason = Outcome.REFUSED, 429, ("queue_full", "requests_per_minute", "promise")[k // 50 % 3]
        wait_ns = run_ns = milli_gpu = 0
    elif k % 100 == 1:
        outcome, status = Outcome.FAILED, 502
    elif k % 100 == 3:
        outcome, status = Outcome.CANCELLED, 499
    ran = outcome is not Outcome.REFUSED
    lender, _ = world.tenants[(k + 1 + k % 3) % len(world.tenants)]
    borrowed = ran and k % 8 == 5 and lender != tenant
    loan = Loan(
        lender,
        tenant,
        request_id,
        milli_gpu // 2,
        arrived_ns + wait_ns,
        arrived_ns + wait_ns + run_ns,
        LoanEnd.TASK_DONE,
    )
    return UsageRecord(
        request_id=request_id,
        attempt=1 if ran else 0,
        tenant=tenant,
        app=APPS[(k // 3) % 2],
        cost_center=f"CC-{1000 + k % len(world.tenants)}",
        model=MODELS[(k // 5) % 2],
        version="1",
        tier=TIERS[tier],
        endpoint="chat",
        stream=True,
        pool=POOL,
        replica=f"r-{k % world.gpus}" if ran else "",
        outcome=outcome,
        status=status,
        reason=reason,
        arrived_ns=arrived_ns,
        wait_ns=wait_ns,
        first_token_ns=wait_ns + 200_000_000 if ran else 0,
        total_ns=wait_ns + run_ns,
        run_ns=run_ns,
        tokens_in=200 + k % 3000,
        tokens_cached=k % 200,
        tokens_out=20 + k % 700 if ran else 0,
        token_source=TokenSource.ENGINE,
        milli_gpu=milli_gpu,
        milli_gpu_ns=milli_gpu * run_ns,
        micro_per_gpu_hour=2_500_000 if ran and outcome is not Outcome.FAILED else 0,
        loans=(loan,) if borrowed else (),
    )
