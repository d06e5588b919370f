"""What `advise` and `compare` do once the past is known.

Imported where it is used: the simulator takes longer to import than most commands run.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import typer
from rich.console import Console, RenderableType

from commonpool.api import text
from commonpool.api.wire.advice import Plan, PoolPlan
from commonpool.app import planning
from commonpool.app.past import Past
from commonpool.cli import show
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.cli.output import emit
from commonpool.config import ConfigError, Sources
from commonpool.config.requota import RequotaError
from commonpool.core.advice import NEVER_NS
from commonpool.core.model import MILLI_PER_GPU, Policy
from commonpool.core.pricing import round_lines
from commonpool.simulator import report as reports
from commonpool.simulator.backtest import (
    EQUAL,
    TODAY,
    Setup,
    backtest,
    own,
    own_cards_needed,
    trial,
)
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.workload import Workload

T = TypeVar("T")


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
    with show.bars() as bar:
        progress = bar("replaying the second half")
        try:
            found, changed = planning.plan(past, progress)
        except ConfigError as error:
            message = f"the advised quotas contradict the configuration:\n{error}"
            raise CommandError(message, ExitCode.FAILED) from None
        except (SimulationError, RequotaError) as error:
            raise CommandError(str(error)) from None
    if out is not None:
        found = msgspec.structs.replace(found, written=_write(past.sources, changed, out))
    if as_json:
        emit(found)
    else:
        _show_plan(found, past.config.currency)


def _each(
    what: str, bar: Callable[[str], show.Progress], past: Past, do: Callable[[str, Policy, Workload], T]
) -> Iterator[T]:
    """Do it for each pool, with a bar that says how far it is."""
    works, progress = _works(past), bar(what)
    for done, (name, (policy, work)) in enumerate(works.items(), 1):
        yield do(name, policy, work)
        progress(done, len(works))


def _works(past: Past) -> dict[str, tuple[Policy, Workload]]:
    if not past.works:
        raise CommandError(planning.NOTHING_ASKED)
    return dict(past.works)


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
    with show.bars() as bar:
        try:
            found = tuple(_each("replaying the past", bar, past, lambda *work: _compared(past, *work)))
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
    now = backtest(whole, Setup(TODAY, capacity, shared=True, quotas=planning.today(policy)))
    tenants = [each.tenant for each in now]
    parts = _parts(policy, tenants, capacity)
    alone = backtest(whole, own(EQUAL, parts))
    needed = own_cards_needed(whole, now, dict.fromkeys(tenants, 4 * capacity), MILLI_PER_GPU)
    length = past.until_ns - past.since_ns
    idle = max(0, capacity * length - sum(each.used_milli_gpu_ns for each in now))
    shares = round_lines({tenant: idle * parts[tenant] for tenant in tenants}, capacity)

    def cost(milli_gpu_ns: int) -> int:
        return planning.cost(policy, name, milli_gpu_ns, past.since_ns)

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
