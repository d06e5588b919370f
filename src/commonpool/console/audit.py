"""The audit log: who was allowed or denied what, and whether the log is as it was written."""

from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire import audit as wire
from commonpool.console.frame import Page, View
from commonpool.store.audit import FILTERABLE

ROWS_MAX: Final = 100
STEPS_MAX: Final = 50  # of verifying in one visit; then it says where to go on
OUTCOMES: Final = ("allowed", "denied", "lost")


class Verdict(msgspec.Struct, frozen=True):
    """What all steps together found; `after` is where to go on, "" at the end of the log."""

    whole: bool
    head: str
    faults: tuple[str, ...]
    after: str


async def show(view: View) -> Response:
    kept = {name: value for name in FILTERABLE if (value := view.query.get(name, ""))}
    found = await view.get("/admin/v1/audit", wire.AuditEntries, limit=ROWS_MAX, after=view.query.get("after"), **kept)
    return view.render(
        "audit.html",
        entries=found.entries,
        kept=kept,
        outcomes=OUTCOMES,
        actions=[each.value for each in Permission],
        more="/audit?" + urlencode(kept | {"after": found.after}) if found.after else "",
    )


async def verify(view: View) -> Response:
    """Walk the log from its beginning, or from where the visit before ended; compare it with a head that was kept."""
    kept, after = view.query.get("head", "").strip(), view.query.get("after", "")
    whole, faults = True, []
    for _ in range(STEPS_MAX):
        step = await view.get("/admin/v1/audit/verify", wire.AuditVerdict, head=kept, after=after)
        whole, after = whole and step.whole, step.head
        faults += [fault.sentence for fault in step.faults]
        if not step.more:
            break
    onward = "/audit/verify?" + urlencode({"head": kept, "after": after}) if step.more else ""
    return view.render("audit_verdict.html", verdict=Verdict(whole, step.head, tuple(faults), onward), kept=kept)


PAGES = (
    Page("/audit", "audit", show, needs=(Permission.READ_AUDIT,), group="access", key="u"),
    Page("/audit/verify", "audit", verify, needs=(Permission.READ_AUDIT,), platform=True),
)
