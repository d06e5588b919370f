"""What is wrong, who is told, and for which alerts nobody is told for a while."""

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, NotFoundError, OperationError, Operations
from commonpool.api.subjects import ACROSS, PLATFORM, Asked, Subject, Who
from commonpool.api.wire import alerts as wire
from commonpool.config.problems import listed
from commonpool.config.quantities import format_duration
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.telling import Silence

SILENCE_NS_MAX = 31 * 24 * NS_PER_HOUR  # what is to be told never belongs into a channel's severity


class ByAlert(msgspec.Struct, frozen=True):
    """One alert, by its id."""

    id: str


async def _of(operations: Operations, asked: Asked) -> str | None:
    return operations.alerts().tenant_of(asked.params.id)


def _missing() -> OperationError:
    return NotFoundError("there is no alert of this id; `commonpool alerts list` shows those there are", param="id")


OF_PATH = Subject(_of, lambda _, __: _missing())


async def alerts(operations: Operations, _: Nothing, who: Who) -> wire.Alerts:
    return operations.alerts().listing(who.scope)


async def silence(operations: Operations, which: ByAlert, new: wire.NewSilence, who: Who) -> wire.Silenced:
    """What a tenant's own people silence, the platform's channels are told still."""
    length_ns = new.until_ns - operations.now_ns()
    if not 0 < length_ns <= SILENCE_NS_MAX:
        raise BadRequestError(
            f"a silence ends later than now and within {format_duration(SILENCE_NS_MAX)}; correct until_ns",
            param="until_ns",
        )
    tenant = _for_whom(operations, which, who)
    await operations.alerts().silence(Silence(which.id, tenant, new.until_ns, who.name))
    return wire.Silenced(which.id, tenant, new.until_ns, who.name)


async def end_silence(operations: Operations, which: ByAlert, who: Who) -> wire.Silenced:
    """What the platform silences, a tenant's own people do not end."""
    tenant = _for_whom(operations, which, who)
    if not await operations.alerts().end_silence(which.id, tenant):
        whose = f"tenant {tenant} has not silenced this alert" if tenant else "the platform has not silenced this alert"
        raise NotFoundError(f"{whose}, so there is nothing to end", param="id")
    return wire.Silenced(which.id, tenant, operations.now_ns(), who.name)


def _for_whom(operations: Operations, which: ByAlert, who: Who) -> str:
    """Whose channels somebody's silence is about: "" for all. What was forgotten since it was decided is nobody's."""
    if who.scope.platform:
        return ""
    tenant = operations.alerts().tenant_of(which.id)
    if not tenant:
        raise _missing()
    return tenant


async def try_channel(operations: Operations, _: Nothing, which: wire.ChannelTest, __: Who) -> wire.ChannelTested:
    channels = operations.config().alerts.channels
    if which.channel not in channels:
        raise BadRequestError(
            f"there is no channel {which.channel!r}; there is {listed(channels) if channels else 'none'}",
            param="channel",
        )
    await operations.alerts().test(which.channel)
    return wire.ChannelTested(which.channel)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/alerts",
        alerts,
        Permission.READ_STATUS,
        ACROSS,
        "What is wrong, or was until lately, and the channels that are told",
        wire.Alerts,
    ),
    Endpoint(
        "POST",
        "/admin/v1/alerts/test",
        try_channel,
        Permission.MANAGE_ALERTS,
        PLATFORM,
        "Something is sent through a channel; answered when its receiver has taken it",
        wire.ChannelTested,
        body=wire.ChannelTest,
    ),
    Endpoint(
        "POST",
        "/admin/v1/alerts/{id}/silence",
        silence,
        Permission.MANAGE_ALERTS,
        OF_PATH,
        "Nobody is told of an alert until then; with a tenant's own key, none of its own channels",
        wire.Silenced,
        ByAlert,
        body=wire.NewSilence,
    ),
    Endpoint(
        "DELETE",
        "/admin/v1/alerts/{id}/silence",
        end_silence,
        Permission.MANAGE_ALERTS,
        OF_PATH,
        "A silence is over: what is due is told within seconds; with a tenant's own key, its own one",
        wire.Silenced,
        ByAlert,
    ),
)
