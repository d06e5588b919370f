"""Prompt logs: a tenant's people switch theirs on and off, read what is in it, and delete it."""

from typing import Final
from urllib.parse import quote, urlencode

from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.people import Me
from commonpool.api.wire.prompts import Deleted, Prompt, PromptEntries, PromptLog, PromptLogOn
from commonpool.config.quantities import QuantityError, parse_duration
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View

HERE: Final = "/settings/prompts"
KEEP: Final = "30d"


def own(me: Me | None) -> list[str]:
    """The tenants whose prompts the reader may read, or have kept."""
    wanted = {Permission.READ_PROMPTS.value, Permission.KEEP_PROMPTS.value}
    return sorted({name for each in (me.may if me else ()) if each.permission in wanted for name in each.tenants or ()})


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, problem: Problem | None = None, code: int = 200) -> Response:
    tenants = own(view.me)
    tenant = view.path.get("tenant") or view.query.get("tenant") or next(iter(tenants), "")
    log: PromptEntries | Problem | None = None
    if tenant:
        log = await view.attempt(_api(tenant), PromptEntries, after=view.query.get("after"))
    onward = ""
    if isinstance(log, PromptEntries) and log.after:
        onward = f"{HERE}?" + urlencode({"tenant": tenant, "after": log.after})
    return view.render(
        "prompts.html", code=code, problem=problem, tenants=tenants, tenant=tenant, log=log, more=onward, keep=KEEP
    )


async def one(view: View) -> Response:
    prompt = await view.get(f"{_api(view.path['tenant'])}/{view.path['id']}", Prompt)
    return view.render("prompt.html", prompt=prompt, tenant=view.path["tenant"])


async def switch(view: View, form: Form) -> Response:
    """On for a while, off, or everything deleted, as the button says."""
    tenant, wanted = view.path["tenant"], form.get("do")
    if wanted not in {"on", "off", "delete"}:
        raise RefusedError(400, f"a prompt log is switched on or off, or deleted, and not {wanted!r}")
    try:
        if wanted == "on":
            keep = PromptLogOn(parse_duration(form.get("keep", KEEP)))
            await view.send("POST", f"{_api(tenant)}/on", PromptLog, keep)
        elif wanted == "off":
            await view.send("POST", f"{_api(tenant)}/off", PromptLog)
        else:
            await view.send("DELETE", _api(tenant), Deleted)
    except QuantityError as error:
        return await _page(view, Problem(400, str(error), "bad_request"), 400)
    except RefusedError as error:
        return await _page(view, error.problem, error.status)
    return view.go(f"{HERE}?tenant={quote(tenant)}", said="prompts.done")


async def delete(view: View, _: Form) -> Response:
    tenant = view.path["tenant"]
    await view.send("DELETE", f"{_api(tenant)}/{view.path['id']}", Deleted)
    return view.go(f"{HERE}?tenant={quote(tenant)}", said="prompts.done")


def _api(tenant: str) -> str:
    return f"/admin/v1/tenants/{tenant}/prompts"


PAGES = (
    Page(HERE, "prompts", show, needs=(Permission.READ_PROMPTS, Permission.KEEP_PROMPTS)),
    Page(f"{HERE}/{{tenant}}", "prompts", act=switch),
    Page(f"{HERE}/{{tenant}}/{{id}}", "prompts", one, delete, needs=(Permission.READ_PROMPTS,)),
)
