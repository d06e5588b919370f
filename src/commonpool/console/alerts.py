"""Alerts: what is wrong or was until lately, what to do about it, and who is told; silence, and a try of a channel."""

from typing import Final

from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.alerts import Alerts, ChannelTest, ChannelTested, NewSilence, Silenced
from commonpool.api.wire.status import Status
from commonpool.console.asking import RefusedError
from commonpool.console.frame import Form, Page, View
from commonpool.core.model import NS_PER_HOUR

SILENCES: Final = {"1h": NS_PER_HOUR, "8h": 8 * NS_PER_HOUR, "7d": 7 * 24 * NS_PER_HOUR}
BAD_REQUEST = 400


async def show(view: View) -> Response:
    found = await view.get("/admin/v1/alerts", Alerts)
    return view.render(
        "alerts.html",
        now=[each for each in found.alerts if each.state != "resolved"],
        over=[each for each in found.alerts if each.state == "resolved"],
        channels=found.channels,
        silences=tuple(SILENCES),
    )


async def silence(view: View, form: Form) -> Response:
    length_ns = SILENCES.get(form.get("for"))
    if length_ns is None:
        raise RefusedError(
            BAD_REQUEST, f"{form.get('for')!r} is no time to be silent for; choose {', '.join(SILENCES)}"
        )
    now_ns = (await view.get("/admin/v1/status", Status)).now_ns
    await view.send(
        "POST",
        f"/admin/v1/alerts/{view.path['id']}/silence",
        Silenced,
        NewSilence(now_ns + length_ns),
    )
    return view.go("/alerts", said="alerts.silenced")


async def unsilence(view: View, _: Form) -> Response:
    await view.send("DELETE", f"/admin/v1/alerts/{view.path['id']}/silence", Silenced)
    return view.go("/alerts", said="alerts.unsilenced")


async def try_channel(view: View, form: Form) -> Response:
    await view.send("POST", "/admin/v1/alerts/test", ChannelTested, ChannelTest(form.get("channel")))
    return view.go("/alerts", said="alerts.tried")


PAGES = (
    Page(
        "/alerts", "alerts", show, act=try_channel, needs=(Permission.READ_STATUS,), group="now", key="w", shared=True
    ),
    Page("/alerts/{id}/silence", "alerts", act=silence),
    Page("/alerts/{id}/unsilence", "alerts", act=unsilence),
)
