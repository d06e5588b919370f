"""Advice: the quotas that two weeks speak for with their test, what lies unused and can be released, and grants."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.advice import Advised, PoolPlan
from commonpool.api.wire.config import Changes
from commonpool.api.wire.grants import Grant, NewGrant
from commonpool.api.wire.releases import NewRelease, Releases, Underused
from commonpool.api.wire.status import Status
from commonpool.config.quantities import QuantityError, parse_duration, parse_gpu
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View, together
from commonpool.core.advice import NEVER_NS, Verdict
from commonpool.store.releases import Release

RELEASES_MAX: Final = 20
GRANT: Final = "24h"


class Tested(msgspec.Struct, frozen=True):
    """A set-up of a pool in figures for all its tenants: the longest of their p99 waits, and what was refused."""

    name: str
    milli_gpu: int
    cost_micro: int
    refused: int
    wait_ns_p99: int | None
    whose: str
    tenants: Sequence[Verdict]


def tested(pool: PoolPlan) -> list[Tested]:
    found = []
    for setup in pool.tested:
        worst = max(setup.tenants, key=lambda each: each.wait_ns_p99, default=None)
        never = worst is None or worst.wait_ns_p99 >= NEVER_NS
        found.append(
            Tested(
                name=setup.name,
                milli_gpu=setup.milli_gpu,
                cost_micro=setup.cost_micro,
                refused=sum(each.refused for each in setup.tenants),
                wait_ns_p99=None if worst is None or never else worst.wait_ns_p99,
                whose="" if worst is None else worst.tenant,
                tenants=setup.tenants,
            )
        )
    return found


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, problem: Problem | None = None) -> Response:
    advised, underused, releases, status = await together(
        view.wish(Permission.READ_ADVICE, "/admin/v1/advice", Advised),
        view.attempt("/admin/v1/underuse", Underused),
        view.attempt("/admin/v1/releases", Releases),
        view.attempt("/admin/v1/status", Status),
    )
    plan = None if isinstance(advised, Problem) else advised.plan
    tenants = () if isinstance(status, Problem) else status.tenants
    return view.render(
        "advice.html",
        code=problem.status if problem else 200,
        problem=problem,
        advised=advised,
        plan=plan,
        pools=[(pool, tested(pool)) for pool in plan.pools] if plan else [],
        never_ns=NEVER_NS,
        underused=underused,
        releases=releases if isinstance(releases, Problem) else releases.releases[:RELEASES_MAX],
        tenants=[each.name for each in tenants if view.may(Permission.GRANT, each.name)],
        granted=[each for each in tenants if each.granted_until_ns],
        grant_for=GRANT,
    )


async def apply(view: View, form: Form) -> Response:
    """Bring the advised quotas into force, as long as they are those that the reader saw."""
    advised = await view.get("/admin/v1/advice", Advised)
    if advised.wanted is None or form.get("made_ns") != str(advised.made_ns):
        raise RefusedError(409, "the advice is another one by now; look at it again")
    try:
        await view.send("POST", "/admin/v1/config/apply", Changes, advised.wanted)
    except RefusedError as error:
        return await _page(view, error.problem)
    return view.go("/advice", said="advice.applied")


async def release(view: View, form: Form) -> Response:
    try:
        amount = form.get("gpus")
        new = NewRelease(form.get("tenant"), _gpus(amount) if amount else None, form.get("reason"))
        await view.send("POST", "/admin/v1/releases", Release, new)
    except RefusedError as error:
        return await _page(view, error.problem)
    return view.go("/advice", said="advice.released")


async def undo(view: View, form: Form) -> Response:
    await view.send("POST", f"/admin/v1/releases/{form.get('tenant')}/undo", Releases)
    return view.go("/advice", said="advice.undone")


async def grant(view: View, form: Form) -> Response:
    try:
        new = NewGrant(form.get("tenant"), _gpus(form.get("gpus")), _length(form.get("for", GRANT)))
        await view.send("POST", "/admin/v1/grants", Grant, new)
    except RefusedError as error:
        return await _page(view, error.problem)
    return view.go("/advice", said="advice.granted_now")


async def end_grant(view: View, form: Form) -> Response:
    await view.send("POST", f"/admin/v1/grants/{form.get('tenant')}/end", Grant)
    return view.go("/advice", said="advice.grant_ended")


def _gpus(text: str) -> int:
    """Thousandths of a GPU, of `1.5` or `500 milli_gpu`. Raises RefusedError."""
    try:
        return parse_gpu(text)
    except QuantityError as error:
        raise RefusedError(400, str(error)) from None


def _length(text: str) -> int:
    try:
        return parse_duration(text)
    except QuantityError as error:
        raise RefusedError(400, str(error)) from None


PAGES = (
    Page("/advice", "advice", show, needs=(Permission.READ_STATUS,), group="money", key="a"),
    Page("/advice/apply", "advice", act=apply),
    Page("/advice/release", "advice", act=release),
    Page("/advice/undo", "advice", act=undo),
    Page("/advice/grant", "advice", act=grant),
    Page("/advice/grant/end", "advice", act=end_grant),
)
