"""`commonpool status`: who has what, who waits, who lends to whom, now."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from commonpool.api import text
from commonpool.api.wire import status as wire
from commonpool.cli.client import Client, connect
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.output import emit, emit_line
from commonpool.config.quantities import format_cores, format_memory, format_money, format_part
from commonpool.core.pictures import ResourceUse, TenantJobs

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WATCH_S = 2.0
# What a model is short of, as people call it.
SHORT = {
    "gpu": "a slot of its replicas",
    "kv_memory": "KV memory of its replicas",
    "cpu": "CPU of its nodes",
    "memory": "memory of its nodes",
    "network": "network of its nodes",
    "start_up": "a replica that starts",
    "quota": "quota of their tenants",
    "none": "their turn",
}
RESOURCES = {"gpu_memory_mib": "GPU memory", "cpu_milli": "CPU", "memory_mib": "memory"}


def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every 2 s until Ctrl-C.")] = False,
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show tenants, pools, replicas and open loans as they are now, and waits of the last ten minutes."""
    client = connect(control, token_file)
    if watch:
        _watch(client, as_json=as_json)
    elif as_json:
        emit(_ask(client))
    else:
        from commonpool.cli import show  # noqa: PLC0415 - rich is slow to import

        out = show.console()
        out.print(picture(out, _ask(client)))


def _ask(client: Client) -> wire.Status:
    return client.get("/admin/v1/status", wire.Status)


def _watch(client: Client, *, as_json: bool) -> None:
    if as_json:
        while True:
            emit_line(_ask(client))
            time.sleep(WATCH_S)
    from rich.live import Live  # noqa: PLC0415 - rich is slow to import

    from commonpool.cli import show  # noqa: PLC0415 - the same

    out = show.console()
    with Live(console=out, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            live.update(picture(out, _ask(client)), refresh=True)
            time.sleep(WATCH_S)


def picture(out: "Console", now: wire.Status) -> "RenderableType":
    """The status as people read it."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import
    from rich.text import Text  # noqa: PLC0415 - the same

    from commonpool.cli import show  # noqa: PLC0415 - the same

    due = any(tenant.due_milli_gpu for tenant in now.tenants)
    titles = ["guaranteed", "in use", "lent", *(["due"] if due else []), "borrowed", "waiting", "running"]
    columns = [show.Column("tenant", right=False), *map(show.Column, [*titles, "wait p50", "wait p99"])]
    rows = [
        (
            tenant.name,
            text.gpus(tenant.guaranteed_milli_gpu),
            text.gpus(tenant.in_use_milli_gpu),
            text.gpus(tenant.lent_milli_gpu),
            *([text.gpus(tenant.due_milli_gpu)] if due else []),
            text.gpus(tenant.borrowed_milli_gpu),
            f"{tenant.waiting:,}",
            f"{tenant.running:,}",
            text.wait(tenant.wait_ns_p50),
            text.wait(tenant.wait_ns_p99),
        )
        for tenant in now.tenants
    ]
    said = (show.warning(line) if line.startswith("warning: ") else show.clean(line) for line in lines(now))
    return Group(show.table(out, columns, rows), Text(), *said)


def _model(model: wire.ModelStatus) -> list[str]:
    """What is worth saying of a model: that it grows or shrinks, what its requests wait for, what is wrong with it."""
    said = []
    if model.wanted != model.ready + model.starting:
        said.append(f"model {model.name}: {model.ready} of {model.wanted} replicas ({model.why.replace('_', ' ')})")
    if model.waiting:
        said.append(
            f"model {model.name}: {model.waiting:,} request(s) wait for {SHORT.get(model.bottleneck, model.bottleneck)}"
            f" (bottleneck: {model.bottleneck.replace('_', ' ')})"
        )
    error = model.error.partition(" Its last lines:")[0]  # they are in the engine's log, and in --json
    if model.broken:
        said.append(f"model {model.name} cannot be started: {error}")
    elif error:
        said.append(f"model {model.name} lost a replica: {error}")
    if model.unplaced:
        said.append(f"model {model.name} finds no place for another replica: {model.unplaced}")
    return said


def _jobs(jobs: TenantJobs) -> str:
    return f"tenant {jobs.tenant}: {jobs.waiting:,} job(s) wait, {text.gpus(jobs.running_milli_gpu)} gpu held by jobs"


def _budget(tenant: str, budget: wire.BudgetStatus) -> str:
    spent, month = format_part(budget.spent_micro, budget.month_micro), format_money(budget.month_micro)
    held = f", {format_part(budget.held_micro, budget.month_micro)} held for what is open" if budget.held_micro else ""
    return f"tenant {tenant}: {spent} of {month} {budget.currency} spent this month{held}"


def _resource(use: ResourceUse) -> str:
    """The use of another resource, by a pool or by a tenant."""
    amount = format_cores if use.resource == "cpu_milli" else format_memory
    said = (
        f"{amount(use.used)} {RESOURCES[use.resource]} used of {amount(use.most)}, {amount(use.guaranteed)} guaranteed"
    )
    return f"tenant {use.tenant}: {said}" if use.tenant else f"pool {use.pool}: {said}"


def lines(now: wire.Status) -> list[str]:
    """What stands below the table: pools, replicas, loans, warnings."""
    free = {each.pool: each.free_milli_gpu for each in now.devices if each.known}
    said = [
        f"pool {pool.name} ({pool.rule}): {text.gpus(pool.capacity_milli_gpu)} gpu,"
        f" {text.gpus(pool.used_milli_gpu)} used, {text.gpus(pool.unowned_milli_gpu)} unowned"
        f"{f', {text.gpus(max(0, free[pool.name]))} free on its nodes' if pool.name in free else ''}"
        f"{', guarantees exceed the capacity and are scaled' if pool.scaled else ''}"
        for pool in now.pools
    ]
    said += [
        f"tenant {tenant.name} is granted {text.gpus(tenant.elastic_cap_milli_gpu)} gpu"
        f" until {text.moment(tenant.granted_until_ns)}"
        for tenant in now.tenants
        if tenant.granted_until_ns is not None
    ]
    said += [_budget(tenant.name, tenant.budget) for tenant in now.tenants if tenant.budget is not None]
    states = Counter(replica.state for replica in now.replicas)
    others = [f"{count} {state}" for state, count in sorted(states.items()) if state != "ready"]
    said.append(", ".join([f"replicas: {states['ready']} of {len(now.replicas)} ready", *others]))
    said += [line for model in now.models for line in _model(model)]
    said += [*map(_jobs, now.jobs), *map(_resource, now.resources)]
    said += [
        f"{loan.lender or 'the unowned part'} lends {loan.borrower} {text.gpus(loan.milli_gpu)} gpu for"
        f" {text.work(loan.requests, loan.jobs)}, since {text.age(loan.start_ns_min, now.now_ns)}"
        f"{', due' if loan.due else ''}"
        for loan in now.loans
    ]
    if now.waits_since_ns is not None:
        window = text.age(now.waits_since_ns, now.now_ns)
        said.append(f"waits: of what ended in the last {window}; `commonpool waits` has those of any period")
    return [*said, *(f"warning: {warning}" for warning in now.warnings)]
