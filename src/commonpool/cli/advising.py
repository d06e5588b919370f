"""What `advise` and `compare` do once the past is known.

Imported where it is used: the simulator takes longer to import than most commands run.
"""

from pathlib import Path

import msgspec
import typer
from rich.console import Console, RenderableType

from commonpool.api import text
from commonpool.cli import show
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.output import emit
from commonpool.cli.past import Past, parsed
from commonpool.config import Change, ConfigError, Sources, diff
from commonpool.config.requota import RequotaError, requota
from commonpool.core.advice import STEP_MILLI_GPU, Advice, Proposal
from commonpool.core.findings import Finding, findings
from commonpool.core.model import MILLI_PER_GPU, Policy, Tenant
from commonpool.core.pricing import exact_cost, round_half_up, round_lines
from commonpool.simulator import report as reports
from commonpool.simulator.backtest import (
    EQUAL,
    NEVER_NS,
    TODAY,
    Setup,
    Verdict,
    backtest,
    own,
    own_cards_needed,
    setups,
    trial,
)
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.workload import Workload


class SetupResult(msgspec.Struct, frozen=True):
    """One way to divide the GPUs on the second half. `cost_micro`: what its GPUs cost in that time, idle or not."""

    name: str
    milli_gpu: int
    cost_micro: int
    tenants: tuple[Verdict, ...]


class PoolPlan(msgspec.Struct, frozen=True):
    """One pool: the advice, and the test of it beside the alternatives."""

    pool: str
    advice: Advice
    tested: tuple[SetupResult, ...]


class Plan(msgspec.Struct, frozen=True):
    """The result of `advise`. Learned from `since_ns` to `split_ns`, tested from there to `until_ns`."""

    source: str
    since_ns: int
    split_ns: int
    until_ns: int
    pools: tuple[PoolPlan, ...]
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    written: tuple[str, ...] = ()


class Department(msgspec.Struct, frozen=True):
    """One tenant: now, with its part of the same cards for itself, and with as many as it would need for today's wait.

    Costs are of the GPUs of the whole time, idle or not; now, its use and its part of what nobody uses.
    """

    tenant: str
    tasks: int
    used_milli_gpu_ns: int
    wait_ns_p99: int
    cost_micro: int
    own_milli_gpu: int
    own_wait_ns_p99: int
    own_cost_micro: int
    needed_milli_gpu: int
    needed_cost_micro: int


class Comparison(msgspec.Struct, frozen=True):
    """The result of `compare` for one pool."""

    pool: str
    milli_gpu: int
    needed_milli_gpu: int
    departments: tuple[Department, ...]


# -- advise ------------------------------------------------------------------------------------------------------------


def advise(past: Past, out: Path | None, *, as_json: bool) -> None:
    """Make the plan, show it, and write it where that is asked for. Raises CommandError."""
    split = past.since_ns + (past.until_ns - past.since_ns) // 2
    with show.progress("replaying the second half"):
        try:
            pools = tuple(_pool(past, name, *work, split) for name, work in _works(past).items())
        except SimulationError as error:
            raise CommandError(str(error)) from None
    quotas = {
        each.tenant: _allowed(each, past.config.policy.tenants[each.tenant], pool.advice.capacity)
        for pool in pools
        for each in pool.advice.proposals
    }
    try:
        changed = requota(past.sources, quotas)
    except ConfigError as error:
        raise CommandError(f"the advised quotas contradict the configuration:\n{error}", ExitCode.FAILED) from None
    except RequotaError as error:
        raise CommandError(str(error)) from None
    written = () if out is None else _write(past.sources, changed, out)
    length = past.until_ns - past.since_ns
    plan = Plan(
        source=past.name,
        since_ns=past.since_ns,
        split_ns=split,
        until_ns=past.until_ns,
        pools=pools,
        changes=tuple(diff(past.config, parsed(changed))),
        findings=tuple(findings(past.models, past.tenants, length)),
        written=written,
    )
    if as_json:
        emit(plan)
    else:
        _show_plan(plan, past.config.currency)


def _works(past: Past) -> dict[str, tuple[Policy, Workload]]:
    if not past.works:
        raise CommandError("no pool that lends was asked for anything; quotas of the others are what they own")
    return dict(past.works)


def _pool(past: Past, name: str, policy: Policy, work: Workload, split: int) -> PoolPlan:
    halves = trial(work, policy, past.since_ns, split, past.until_ns)
    halves = msgspec.structs.replace(
        halves,
        series=tuple(
            msgspec.structs.replace(
                each,
                guaranteed=policy.tenants[each.tenant].guaranteed,
                elastic_cap=policy.tenants[each.tenant].elastic_cap,
                wait_ns_p99=past.waits_ns.get(each.tenant),
                patience_ns=_patience(policy, policy.tenants[each.tenant]),
            )
            for each in halves.series
        ),
    )
    advice, compared = setups(halves, policy.pools[name].milli_gpu, _today(policy))
    length = past.until_ns - split
    return PoolPlan(
        pool=name,
        advice=advice,
        tested=tuple(
            SetupResult(
                setup.name,
                setup.capacity,
                _cost(policy, name, setup.capacity * length, split),
                backtest(halves, setup),
            )
            for setup in compared
        ),
    )


def _today(policy: Policy) -> dict[str, tuple[int, int]]:
    return {name: (tenant.guaranteed, tenant.elastic_cap) for name, tenant in policy.tenants.items()}


def _patience(policy: Policy, tenant: Tenant) -> int:
    """The target of its most urgent tier, or the longest wait that it was promised."""
    tier = policy.tiers[max(tenant.priority, key=tenant.priority.__getitem__)]
    return tenant.max_wait_ns if tier.queue_target_ns is None else tier.queue_target_ns


def _allowed(proposal: Proposal, tenant: Tenant, capacity: int) -> tuple[int, int]:
    """In tenths of a GPU, and within what else the tenant's configuration says: reserved, headroom and hard_cap."""
    guaranteed, cap = proposal.guaranteed, proposal.elastic_cap
    if guaranteed > STEP_MILLI_GPU:
        guaranteed -= guaranteed % STEP_MILLI_GPU
    cap = min(capacity, -(-cap // STEP_MILLI_GPU) * STEP_MILLI_GPU)
    if tenant.hard_cap > tenant.elastic_cap:
        cap = min(cap, tenant.hard_cap)
    guaranteed = max(guaranteed, tenant.reserved, tenant.headroom)
    # What differs by less than a step is not worth a change.
    if abs(guaranteed - tenant.guaranteed) < STEP_MILLI_GPU:
        guaranteed = tenant.guaranteed
    if abs(cap - tenant.elastic_cap) < STEP_MILLI_GPU:
        cap = tenant.elastic_cap
    return guaranteed, max(cap, guaranteed)


def _cost(policy: Policy, pool: str, milli_gpu_ns: int, at_ns: int) -> int:
    price = policy.prices.get(pool)
    return 0 if price is None else round_half_up(exact_cost(milli_gpu_ns, price.at(at_ns)))


def _write(before: Sources, after: Sources, out: Path) -> tuple[str, ...]:
    """The main file as `out`; what it includes beside that, in another folder than the originals."""
    if before.applied:
        raise CommandError(
            f"tenants were applied on their own ({', '.join(sorted(before.applied))}); put them into the"
            " configuration's file first, or leave --out out and apply the changes by hand"
        )
    folder = Path(before.main).absolute().parent
    included = {file: Path(file).absolute() for file in after.files if file != after.main}
    if included and out.absolute().parent == folder:
        raise CommandError(
            f"--out {out} lies beside the configuration, whose tenants' own files would be overwritten; name a file in"
            " another folder",
            ExitCode.USAGE,
        )
    written = {out: after.files[after.main]}
    written |= {out.absolute().parent / path.relative_to(folder): after.files[file] for file, path in included.items()}
    try:
        for path, content in written.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the plan cannot be written to {out}: {error.strerror or error}") from None
    return tuple(map(str, written))


def _show_plan(plan: Plan, currency: str) -> None:
    out = show.console()
    half = reports.duration(plan.split_ns - plan.since_ns)
    out.print(show.clean(f"learned from {half} of {plan.source}, tested on the {half} that follow"))
    for pool in plan.pools:
        advice = pool.advice
        out.print()
        out.print(
            show.clean(
                f"pool {pool.pool}: {text.gpus(advice.capacity)} gpu; {text.gpus(advice.enough)} are enough for what"
                f" all want together in 95 of 100 intervals, cards of their own would be {text.gpus(advice.static)}"
            )
        )
        columns = ["guaranteed", "elastic_cap", "mean", "usual", "p95", "peak"]
        out.print(
            show.table(
                out,
                [show.Column("tenant", right=False), *map(show.Column, columns), show.Column("why", right=False)],
                [
                    (
                        each.tenant,
                        *map(
                            text.gpus,
                            (each.guaranteed, each.elastic_cap, each.mean, each.usual, each.high, each.peak),
                        ),
                        each.sentence,
                    )
                    for each in advice.proposals
                ],
            )
        )
        out.print()
        out.print(_tested(out, pool, currency))
    out.print()
    if plan.changes:
        rows = [(change.key, change.old or text.NONE, change.new or text.NONE) for change in plan.changes]
        out.print(show.table(out, [show.Column(title, right=False) for title in ("change", "now", "then")], rows))
    else:
        out.print("the quotas are as they should be; nothing to change")
    for each in plan.findings:
        saved = f"{reports.gpu_hours(each.saving_milli_gpu_ns)} GPU-hours, {text.money(each.saving_micro)} {currency}"
        out.print(show.clean(f"{each.sentence} It would save {saved}."))
    if plan.written:
        typer.echo(f"written: {', '.join(plan.written)}; bring it into force with `commonpool apply {plan.written[0]}`")


def _tested(out: Console, pool: PoolPlan, currency: str) -> RenderableType:
    """A row for each tenant under each set-up."""
    columns = ["gpu", f"cost {currency}", "wait p50", "p99", "refused", "gpu h used", "borrowed", "lent"]
    rows = []
    for setup in pool.tested:
        for number, each in enumerate(setup.tenants):
            rows.append(
                (
                    setup.name if not number else "",
                    each.tenant,
                    text.gpus(setup.milli_gpu) if not number else "",
                    text.money(setup.cost_micro) if not number else "",
                    *map(_wait, (each.wait_ns_p50, each.wait_ns_p99)),
                    f"{each.refused:,}",
                    *map(
                        reports.gpu_hours,
                        (each.used_milli_gpu_ns, each.borrowed_milli_gpu_ns, each.lent_milli_gpu_ns),
                    ),
                )
            )
    return show.table(
        out, [show.Column("tested", right=False), show.Column("tenant", right=False), *map(show.Column, columns)], rows
    )


def _wait(ns: int) -> str:
    return "never" if ns >= NEVER_NS else reports.duration(ns)


# -- compare -----------------------------------------------------------------------------------------------------------


def compare(past: Past, *, as_json: bool) -> None:
    """Replay the whole past shared and on cards of one's own, and show both. Raises CommandError."""
    with show.progress("replaying the past"):
        try:
            found = tuple(_compared(past, name, *work) for name, work in _works(past).items())
        except SimulationError as error:
            raise CommandError(str(error)) from None
    if as_json:
        emit(found)
        return
    out = show.console()
    for pool in found:
        out.print(_comparison(out, pool, past.config.currency))
        out.print()
        out.print(
            show.clean(
                f"For the waits that they have now on {text.gpus(pool.milli_gpu)} gpu together, the departments would"
                f" need {text.gpus(pool.needed_milli_gpu)} gpu of their own."
            )
        )


def _compared(past: Past, name: str, policy: Policy, work: Workload) -> Comparison:
    whole = trial(work, policy, past.since_ns, past.since_ns, past.until_ns)
    capacity = policy.pools[name].milli_gpu
    now = backtest(whole, Setup(TODAY, capacity, shared=True, quotas=_today(policy)))
    tenants = [each.tenant for each in now]
    parts = _parts(policy, tenants, capacity)
    alone = backtest(whole, own(EQUAL, parts))
    needed = own_cards_needed(whole, now, dict.fromkeys(tenants, 4 * capacity), MILLI_PER_GPU)
    length = past.until_ns - past.since_ns
    idle = max(0, capacity * length - sum(each.used_milli_gpu_ns for each in now))
    shares = round_lines({tenant: idle * parts[tenant] for tenant in tenants}, capacity)

    def cost(milli_gpu_ns: int) -> int:
        return _cost(policy, name, milli_gpu_ns, past.since_ns)

    departments = tuple(
        Department(
            tenant=each.tenant,
            tasks=each.tasks,
            used_milli_gpu_ns=each.used_milli_gpu_ns,
            wait_ns_p99=each.wait_ns_p99,
            cost_micro=cost(each.used_milli_gpu_ns + shares[each.tenant]),
            own_milli_gpu=parts[each.tenant],
            own_wait_ns_p99=own_.wait_ns_p99,
            own_cost_micro=cost(parts[each.tenant] * length),
            needed_milli_gpu=needed[each.tenant],
            needed_cost_micro=cost(needed[each.tenant] * length),
        )
        for each, own_ in zip(now, alone, strict=True)
    )
    return Comparison(name, capacity, sum(needed.values()), departments)


def _parts(policy: Policy, tenants: list[str], capacity: int) -> dict[str, int]:
    """The pool split by guarantees; evenly where nobody is guaranteed anything."""
    weights = {name: policy.tenants[name].guaranteed for name in tenants}
    if not any(weights.values()):
        weights = dict.fromkeys(tenants, 1)
    return round_lines({name: weight * capacity for name, weight in weights.items()}, sum(weights.values()))


def _comparison(out: Console, pool: Comparison, currency: str) -> RenderableType:
    columns = ["tasks", "gpu h used", "p99 now", f"cost now {currency}", "own gpu", "p99", "cost"]
    columns += ["gpu for today's wait", "cost"]
    rows = [
        (
            each.tenant,
            f"{each.tasks:,}",
            reports.gpu_hours(each.used_milli_gpu_ns),
            _wait(each.wait_ns_p99),
            text.money(each.cost_micro),
            text.gpus(each.own_milli_gpu),
            _wait(each.own_wait_ns_p99),
            text.money(each.own_cost_micro),
            text.gpus(each.needed_milli_gpu),
            text.money(each.needed_cost_micro),
        )
        for each in pool.departments
    ]
    head = show.Column(f"pool {pool.pool}", right=False)
    return show.table(out, [head, *map(show.Column, columns)], rows)
