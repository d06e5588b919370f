"""Who is told what is wrong: what must hold between its keys, and the structs made of them."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from commonpool.config.outgoing import LOCALHOST, literal
from commonpool.config.problems import KeyPath, Report, hint, quote
from commonpool.config.quantities import format_duration
from commonpool.config.secrets import below
from commonpool.config.shape import Values
from commonpool.config.structs import Alerts, Channel, Mail
from commonpool.core.alerts import Severity


def check_alerts(values: Values, report: Report) -> None:
    """Report what contradicts itself in `alerts`."""
    tenants = values.get("tenants", {})
    for at, channel in _channels(values):
        tenant = channel.get("tenant")
        if tenant is not None and tenant not in tenants and not report.is_bad(("tenants",)):
            report.fail(
                (*at, "tenant"), f"there is no tenant {quote(tenant)}; {hint(tenant, tenants, 'known')}", tenant
            )
        if channel.get("kind") == "email":
            _login(channel, at, report)


def _login(channel: Values, at: KeyPath, report: Report) -> None:
    for key, other in (("user", "password"), ("password", "user")):
        if key in channel and other not in channel and report.is_sound((*at, other)):
            report.fail((*at, other), f"is missing, and there is a {key}; write both, or neither")
    server = channel.get("server")
    if "password" in channel and channel.get("tls") == "none" and server is not None and not _is_here(server.host):
        sentence = "is none, so the password would cross the network as it is; use starttls or implicit"
        report.fail((*at, "tls"), sentence, "none")


def _is_here(host: str) -> bool:
    address = literal(host)
    return host.lower() == LOCALHOST or (address is not None and address.is_loopback)


def hosts(values: Values) -> Iterator[tuple[KeyPath, str, str | None]]:
    """What the channels connect to, as far as the file says: key, what is written there, and the host."""
    for at, channel in _channels(values):
        url = channel.get("url")
        if url is not None and url.startswith("http"):
            yield (*at, "url"), url, urlsplit(url).hostname
        if (server := channel.get("server")) is not None:
            yield (*at, "server"), str(server), server.host


def _channels(values: Values) -> Iterator[tuple[KeyPath, Values]]:
    for name, channel in values.get("alerts", {}).get("channels", {}).items():
        yield ("alerts", "channels", name), channel


def alerts(values: Values, folder: Path) -> Alerts:
    """What the checked values say. Relative paths in it are below `folder`."""
    said = values["alerts"]
    return Alerts(
        channels={name: _channel(name, channel, folder) for name, channel in said.get("channels", {}).items()},
        group_wait_ns=said["group_wait"],
        repeat_ns=said["repeat_after"],
        quiet=said.get("quiet_hours"),
        time_zone=said.get("time_zone", values["prices"]["time_zone"]),
    )


def _channel(name: str, said: Values, folder: Path) -> Channel:
    mail = None
    if said["kind"] == "email":
        mail = Mail(
            server=said["server"],
            sender=said["from"],
            to=tuple(said["to"]),
            tls=said["tls"],
            user=said.get("user"),
            password=below(folder, said.get("password")),
        )
    return Channel(
        name=name,
        kind=said["kind"],
        tenant=said.get("tenant", ""),
        severity=Severity(said["severity"]),
        url=below(folder, said.get("url")),
        secret=below(folder, said.get("secret")),
        mail=mail,
    )


def describe_alerts(said: Alerts, billing_zone: str) -> dict[KeyPath, str | None]:
    """Every setting of it under its key, as people write it; a time zone that is the bills' follows that one."""
    found: dict[KeyPath, str | None] = {
        ("alerts", "group_wait"): format_duration(said.group_wait_ns),
        ("alerts", "repeat_after"): format_duration(said.repeat_ns),
        ("alerts", "quiet_hours"): None if said.quiet is None else "-".join(map(str, said.quiet)),
        ("alerts", "time_zone"): None if said.time_zone == billing_zone else said.time_zone,
    }
    for name, channel in said.channels.items():
        keys = {
            "kind": channel.kind,
            "tenant": channel.tenant or None,
            "severity": channel.severity.value,
            "url": channel.url,
            "secret": channel.secret,
        }
        if channel.mail is not None:
            mail = channel.mail
            keys |= {
                "server": str(mail.server),
                "tls": mail.tls,
                "from": mail.sender,
                "to": f"[{', '.join(mail.to)}]",
                "user": mail.user,
                "password": mail.password,
            }
        found |= {("alerts", "channels", name, key): text for key, text in keys.items()}
    return found
