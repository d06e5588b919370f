"""The keys of who is told what is wrong. Reasons for the defaults are in docs/configuration.md."""

import re
from typing import Final, get_args
from urllib.parse import urlsplit

from commonpool.config import kinds
from commonpool.config.access_keys import EMAIL
from commonpool.config.kinds import Leaf, between, choice, matching
from commonpool.config.problems import SecretError
from commonpool.config.quantities import format_duration
from commonpool.config.shape import Field, Record, Series, Table, Tagged
from commonpool.config.structs import Alerts, Channel, MailTls
from commonpool.core.alerts import Severity

CHANNELS_MAX: Final = 256
TO_MAX: Final = 50
SIGNED: Final = ("webhook", "feishu", "dingtalk")  # kinds that can sign what they send
_ALERTS = Alerts()
_CHANNEL = Channel("", "webhook")


def _place(text: str) -> str:
    if not re.fullmatch(kinds.NAMED_PLACE, text) or len(text) > kinds.PATH_CHARS_MAX:
        raise SecretError("names where the secret is, never the secret: env:NAME or file:PATH")
    return text


def _robot(text: str) -> str:
    if not re.fullmatch(kinds.NAMED_PLACE, text) or len(text) > kinds.PATH_CHARS_MAX:
        raise SecretError(
            "is a secret, since whoever has the URL of a robot can write to its group; put it where only the product "
            "reads it, and name that place: env:NAME or file:PATH"
        )
    return text


def _hook(text: str) -> str:
    """The URL of a webhook, or where that is."""
    if re.fullmatch(kinds.NAMED_PLACE, text) and len(text) <= kinds.PATH_CHARS_MAX:
        return text
    if not {"@", "?", "#"}.isdisjoint(text):
        raise SecretError(
            "with a user, a password or a query holds a secret; name where the whole URL is: env:NAME or file:PATH"
        )
    try:
        parts = urlsplit(text)
        sound = parts.port != 0 and bool(re.fullmatch(r"[a-z0-9._:-]+", parts.hostname or ""))
    except ValueError:
        sound = False
    if not sound or not re.fullmatch(r"https?://[!-~]+", text) or len(text) > kinds.URL_CHARS_MAX:
        raise ValueError(f"{text[:60]!r} is not a URL; write it like https://hooks.example/alerts, or env:NAME")
    return text


SECRET = Leaf("env:NAME or file:PATH", _place, kinds.CREDENTIAL.schema)
ROBOT = Leaf("env:NAME or file:PATH", _robot, kinds.CREDENTIAL.schema)
HOOK = Leaf(
    "a URL like https://hooks.example/alerts, env:NAME or file:PATH",
    _hook,
    {"type": "string", "pattern": "^(https?://|env:|file:)"},
)
USER = matching(r"^[!-~]{1,128}$", "a user of the mail server", "alerts@house.example")

_FOR_ALL = (
    Field("tenant", kinds.NAME, "Only what concerns this tenant.", derived="everything"),
    Field("severity", choice(*Severity), "The least severity that it is told.", default=_CHANNEL.severity),
)


def _posted(kind: str) -> Record:
    """A channel that is posted to."""
    where = HOOK if kind == "webhook" else ROBOT
    what = "Where alerts are posted to" if kind == "webhook" else "Where the URL of the group's robot is"
    secret = Field("secret", SECRET, "Where the secret is that messages are signed with.", derived="they are not")
    return Record((Field("url", where, f"{what}.", required=True), *((secret,) if kind in SIGNED else ()), *_FOR_ALL))


EMAILED = Record(
    (
        Field(
            "server",
            kinds.ADDRESS,
            "The mail server with its port, mostly 587, or 465 for implicit.",
            required=True,
        ),
        Field("tls", choice(*get_args(MailTls)), "When TLS begins.", default="starttls"),
        Field("from", EMAIL, "Who sends.", required=True),
        Field("to", Series(EMAIL, TO_MAX, 1), "Who receives.", required=True),
        Field("user", USER, "Who logs in at the server.", derived="nobody logs in"),
        Field("password", SECRET, "Where that user's password is."),
        *_FOR_ALL,
    )
)
CHANNEL = Tagged(
    "kind",
    "What kind of receiver it is.",
    {
        "webhook": _posted("webhook"),
        "email": EMAILED,
        **{kind: _posted(kind) for kind in ("feishu", "dingtalk", "wecom", "slack")},
    },
)
ALERTS = Record(
    (
        Field("channels", Table(CHANNEL, CHANNELS_MAX), "Where alerts are told."),
        Field(
            "group_wait",
            between(kinds.DURATION, "1s", "1h"),
            "How long the first alert waits for others to go with it.",
            default=format_duration(_ALERTS.group_wait_ns),
        ),
        Field(
            "repeat_after",
            between(kinds.DURATION, "1m", "30d"),
            "After how long what is wrong still is told again.",
            default=format_duration(_ALERTS.repeat_ns),
        ),
        Field(
            "quiet_hours",
            kinds.HOURS,
            "Hours of the day in which only what is critical is told; the rest is told at their end.",
        ),
        Field("time_zone", kinds.TIME_ZONE, "Whose hours these are.", derived="prices.time_zone"),
    )
)
