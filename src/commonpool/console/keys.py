"""Keys: those there are, a new one, another one in place of one, and none any more. A secret is shown once."""

from collections.abc import Iterable
from typing import Final

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.keys import CreatedKey, Key, Keys, NewKey, Rotation
from commonpool.api.wire.status import Status
from commonpool.config.quantities import QuantityError, parse_duration
from commonpool.console import asks
from commonpool.console.asking import Problem, RefusedError
from commonpool.console.frame import Form, Page, View, together
from commonpool.core.model import NS_PER_HOUR

ROLES_OF_TENANTS: Final = ("tenant-admin", "developer", "viewer")
ROLES_OF_PLATFORM: Final = ("platform-admin", "operator", "finance", "viewer", "auditor")
# Long enough to bring the new one to where it is used; whoever needs another length says so.
OVERLAP: Final = "24h"
DAY_NS: Final = 24 * NS_PER_HOUR
DAYS_MAX: Final = 36_500


class Row(msgspec.Struct, frozen=True):
    """A key and whether it still works: live, expired or revoked; `ends_ns` is when it stops, or did."""

    key: Key
    state: str
    ends_ns: int | None


def rows(keys: Iterable[Key], now_ns: int) -> list[Row]:
    """Those that work first, the newest of each state first."""
    found = [_row(key, now_ns) for key in keys]
    return sorted(found, key=lambda row: (row.state != "live", -row.key.created_ns, row.key.id))


def _row(key: Key, now_ns: int) -> Row:
    ends = [each for each in (key.revoked_ns, key.expires_ns) if each is not None]
    ends_ns = min(ends, default=None)
    if ends_ns is None or ends_ns > now_ns:
        return Row(key, "live", ends_ns)
    return Row(key, "revoked" if ends_ns == key.revoked_ns else "expired", ends_ns)


async def show(view: View) -> Response:
    return await _page(view)


async def _page(view: View, problem: Problem | None = None, code: int = 200) -> Response:
    keys, status = await together(
        view.get("/admin/v1/keys", Keys),
        view.wish(Permission.READ_STATUS, "/admin/v1/status", Status),
    )
    wanted = view.query.get("tenant", "")
    tenants = [] if isinstance(status, Problem) else [each.name for each in status.tenants]
    platform = view.may_platform(Permission.MANAGE_KEYS)
    return view.render(
        "keys.html",
        code=code,
        problem=problem,
        rows=[row for row in rows(keys.keys, view.now_ns) if wanted in ("", row.key.tenant)],
        tenant=wanted,
        tenants=[name for name in tenants if view.may(Permission.MANAGE_KEYS, name)],
        models=[] if isinstance(status, Problem) else [each.name for each in status.models],
        roles=(*ROLES_OF_PLATFORM, "tenant-admin", "developer") if platform else ROLES_OF_TENANTS,
        overlap=OVERLAP,
    )


async def make(view: View, form: Form) -> Response:
    try:
        made = await view.send("POST", "/admin/v1/keys", CreatedKey, _wanted(form, view.now_ns))
    except RefusedError as error:
        return await _page(view, error.problem, error.status)
    return view.render("key_made.html", code=201, made=made)


def _wanted(form: Form, now_ns: int) -> NewKey:
    """What the form asks for. Raises RefusedError."""
    days = asks.number(form, "days", 0)
    if form.get("days") and not 0 < days <= DAYS_MAX:
        raise RefusedError(400, f"a key works for 1 to {DAYS_MAX} days, not {days}; leave it empty for no end")
    about = NewKey(
        tenant=form.get("tenant"),
        expires_ns=now_ns + days * DAY_NS if days else None,
        note=form.get("note"),
        networks=tuple(form.get("networks").replace(",", " ").split()) or None,
    )
    if form.get("scope") == "admin":
        return msgspec.structs.replace(about, scope="admin", role=form.get("role"))
    models = tuple(name for name in form.all("models") if name)
    return msgspec.structs.replace(about, app=form.get("app"), tier=form.get("tier") or None, models=models or None)


async def rotate(view: View, form: Form) -> Response:
    try:
        overlap_ns = parse_duration(form.get("overlap", OVERLAP) or "0s")
    except QuantityError as error:
        return await _page(view, Problem(400, str(error), "bad_request"), 400)
    body = Rotation(overlap_ns)
    made = await view.send("POST", f"/admin/v1/keys/{view.path['id']}/rotate", CreatedKey, body)
    return view.render("key_made.html", code=201, made=made)


async def revoke(view: View, _: Form) -> Response:
    await view.send("POST", f"/admin/v1/keys/{view.path['id']}/revoke", Key)
    return view.go("/keys", said="keys.revoked_now")


PAGES = (
    Page("/keys", "keys", show, make, needs=(Permission.READ_KEYS,), group="access", key="k"),
    Page("/keys/{id}/rotate", "keys", act=rotate),
    Page("/keys/{id}/revoke", "keys", act=revoke),
)
