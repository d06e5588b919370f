"""Alerts in the configuration: what becomes of the keys, and what is refused."""

import pytest

from commonpool.config import ConfigError, parse
from commonpool.config.changes import diff
from commonpool.config.structs import Address, Alerts, Channel, Mail
from commonpool.core.alerts import Severity
from commonpool.core.model import NS_PER_HOUR, NS_PER_S

BASE = """
pools: {main: {gpus: 4_gpu}}
models:
  m: {version: v1, gpu: 1_gpu, slots: 4, context: 100, engine: {kind: attached, urls: ["http://127.0.0.1:9001"]}}
prices: {currency: EUR, time_zone: Europe/Berlin, gpu_hour: {main: 1}}
tenants: {a: {tenant: {guaranteed: 2_gpu}}}
"""
WHOLE = (
    BASE
    + """
alerts:
  group_wait: 10s
  repeat_after: 1h
  quiet_hours: 20-7
  channels:
    ops: {kind: webhook, url: "https://hooks.example/a", secret: env:HOOK, severity: critical}
    team: {kind: feishu, url: file:feishu, tenant: a}
    mail: {kind: email, server: "mail.example:587", from: p@x.example, to: [Q@x.example], user: u, password: file:pw}
"""
)


def test_the_keys_become_channels() -> None:
    assert parse(WHOLE, "/etc/pool/commonpool.yaml").alerts == Alerts(
        channels={
            "ops": Channel(
                "ops", "webhook", severity=Severity.CRITICAL, url="https://hooks.example/a", secret="env:HOOK"
            ),
            "team": Channel("team", "feishu", tenant="a", url="file:/etc/pool/feishu"),
            "mail": Channel(
                "mail",
                "email",
                mail=Mail(
                    Address("mail.example", 587),
                    "p@x.example",
                    ("q@x.example",),
                    user="u",
                    password="file:/etc/pool/pw",
                ),
            ),
        },
        group_wait_ns=10 * NS_PER_S,
        repeat_ns=NS_PER_HOUR,
        quiet=(20, 7),
        time_zone="Europe/Berlin",
    )


def test_without_them_nobody_is_told() -> None:
    assert parse(BASE).alerts == Alerts(time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("https://hooks.example/a", "https://hooks.example/a?token=x", "holds a secret; name where the whole URL is"),
        ("https://hooks.example/a", "ftp://hooks.example", "is not a URL"),
        ("https://hooks.example/a", "http://169.254.169.254/x", "credentials from a cloud"),
        ("url: file:feishu", 'url: "https://open.feishu.cn/x"', "is a secret, since whoever has the URL of a robot"),
        ("secret: env:HOOK", "secret: hush", "names where the secret is, never the secret"),
        ("tenant: a}", "tenant: b}", 'there is no tenant "b"'),
        (", password: file:pw", "", "is missing, and there is a user"),
        ("from: p@x", "tls: none, from: p@x", "the password would cross the network as it is"),
        ("kind: feishu", "kind: pigeon", "is not known here"),
        ("group_wait: 10s", "group_wait: 2h", "must be from 1s to 1h"),
        ("mail.example:587", "0.0.0.0:587", "is the address of no machine"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, says: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError) as caught:
        parse(WHOLE.replace(old, new, 1))
    assert says in str(caught.value)
    assert "token=x" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_outgoing_holds_for_channels() -> None:
    with pytest.raises(ConfigError, match="is not one of the destinations under outgoing"):
        parse(WHOLE.replace("mail.example", "10.0.0.1") + "outgoing: [127.0.0.1]\n")


def test_a_change_is_shown_and_holds_at_once() -> None:
    changes = diff(parse(WHOLE), parse(WHOLE.replace("group_wait: 10s", "group_wait: 20s")))
    assert [(each.key, each.old, each.new, each.effect) for each in changes] == [
        ("alerts.group_wait", "10s", "20s", "at once")
    ]
