"""What is wrong, the channels that are told of it, and what nobody is told of."""

from typing import Literal

import msgspec

from commonpool.core.said import Said


class Alert(msgspec.Struct, frozen=True):
    """Something that is wrong, or was until lately; docs/alerts.md has the names.

    `state` is "pending" where it has not lasted for long enough yet, then "firing" from `fired_ns`, "resolved" from
    `ended_ns`. `tenant` is whose it is, "" for the platform's; `about` says of what it is. `silenced_until_ns` is until
    when the caller's channels are not told of it, None where they are. `said` is the sentence by its name, None where
    somebody else has said it. `gone`: it is so no more, and fires on until that has lasted; nobody is told of it then.
    """

    id: str
    name: str
    severity: Literal["info", "warning", "critical"]
    state: Literal["pending", "firing", "resolved"]
    tenant: str
    pool: str
    about: dict[str, str]
    sentence: str
    advice: str
    since_ns: int
    fired_ns: int | None = None
    ended_ns: int | None = None
    silenced_until_ns: int | None = None
    silenced_by: str = ""
    said: Said | None = None
    gone: bool = False


class AlertChannel(msgspec.Struct, frozen=True):
    """Where alerts are told. While that fails, since when and why; `failing_since_ns` is None while it does not.

    `taken_ns` is when it took something last; None: nothing since the product started.
    """

    name: str
    kind: str
    tenant: str
    severity: str
    failing_since_ns: int | None = None
    error: str = ""
    taken_ns: int | None = None


class Alerts(msgspec.Struct, frozen=True):
    """What fires, then what is about to, then what is over, the newest first of each; and the channels."""

    alerts: tuple[Alert, ...]
    channels: tuple[AlertChannel, ...]


class NewSilence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nobody is to be told of an alert until then (ns since the epoch)."""

    until_ns: int


class Silenced(msgspec.Struct, frozen=True):
    """An alert that nobody is told of until then; with a tenant, that tenant's channels are not."""

    id: str
    tenant: str
    until_ns: int
    by: str


class ChannelTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something is to be sent through this channel."""

    channel: str


class ChannelTested(msgspec.Struct, frozen=True):
    """The channel has taken it."""

    channel: str
