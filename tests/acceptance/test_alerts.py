"""Alerts of the real product, told to real receivers: over `kill -9`, a receiver that is away, and to tenants apart."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.product import Product, running, wait_for_a_month
from tests.acceptance.test_durability import engine
from tests.control.alerting.receivers import Hook, Mailbox, Posted, hook, mailbox

DEADLINE_S = 120.0
ASKED = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
CONFIG = """
pools: {{main: {{gpus: 2_gpu}}}}
models:
  mock: {{version: v1, gpu: 1_gpu, slots: 4, context: 2048, engine: {{kind: attached, urls: ["http://127.0.0.1:{port}"]}}}}
prices: {{currency: EUR, gpu_hour: {{main: 1000}}}}
alerts:
  group_wait: 1s
  channels:
    ops: {{kind: webhook, url: "http://127.0.0.1:{hook}/ops", severity: info}}
    mail: {{kind: email, server: "localhost:{mail}", tls: none, from: pool@house.example, to: [ops@house.example]}}
    team: {{kind: webhook, url: "http://127.0.0.1:{hook}/team", tenant: support, severity: info}}
tenants:
  support: {{tenant: {{guaranteed: {guaranteed}}}, budget: {{month: {month}}}}}
  research: {{tenant: {{guaranteed: 1_gpu}}}}
"""


class Receivers:
    """A webhook's receiver and a mail server, on a loop of their own beside the test."""

    def __init__(self, hook: Hook, box: Mailbox, loop: asyncio.AbstractEventLoop) -> None:
        self.hook = hook
        self.box = box
        self.loop = loop

    def away(self) -> None:
        asyncio.run_coroutine_threadsafe(self.hook.close(), self.loop).result(DEADLINE_S)

    def back(self) -> None:
        asyncio.run_coroutine_threadsafe(self.hook.open(), self.loop).result(DEADLINE_S)

    def told(self, path: str) -> list[tuple[str, str]]:
        """Each line of the messages that came at a path: the alert, and its state."""
        return [(each["name"], each["state"]) for post in self._at(path) for each in post.json["alerts"]]

    def _at(self, path: str) -> list[Posted]:
        return [post for post in tuple(self.hook.posted) if post.path == path]


@contextlib.contextmanager
def receivers() -> Iterator[Receivers]:
    """They serve on a thread of their own."""
    made: Future[tuple[Receivers, asyncio.Event]] = Future()

    async def serve() -> None:
        enough = asyncio.Event()
        async with hook() as posts, mailbox() as box:
            made.set_result((Receivers(posts, box, asyncio.get_running_loop()), enough))
            await enough.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    there, enough = made.result(DEADLINE_S)
    try:
        yield there
    finally:
        there.loop.call_soon_threadsafe(enough.set)
        thread.join()


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def text(port: int, there: Receivers, *, guaranteed: str = "1_gpu", month: str = "1000") -> str:
    ports = {"port": port, "hook": there.hook.port, "mail": there.box.port}
    return CONFIG.format(**ports, guaranteed=guaranteed, month=month)


def apply(product: Product, config: str) -> None:
    product.config.write_text(product.listen + config)
    product.cli("apply", str(product.config))


def listed(product: Product, state: str) -> dict[str, Any]:
    """By name, the alerts in this state."""
    found = product.cli("alerts", "list", "--resolved")["alerts"]
    return {each["name"]: each for each in found if each["state"] == state}


def noted(product: Product, name: str) -> set[str]:
    """The channels of which the store has that they were told of an alert: before that a kill has them told again."""
    database = f"file:{product.folder / 'var' / 'commonpool.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(database, uri=True)) as db:
        kept = [json.loads(content) for (content,) in db.execute("SELECT content FROM alerts")]
    told = (each.get("told", {}) for each in kept if each["episode"]["trouble"]["name"] == name)
    return {channel for each in told for channel, at_ns in each.items() if at_ns}


def test_what_is_wrong_is_told_and_told_once_over_a_kill(tmp_path: Path) -> None:
    wait_for_a_month()
    scaled = ("guarantees_scaled", "firing")
    with receivers() as there, engine() as port, running(tmp_path, text(port, there)) as product:
        # given channels that work
        assert product.cli("alerts", "test", "mail") == {"channel": "mail"}
        assert there.box.mails[0]["subject"] == "[commonpool] test of channel mail"
        # when more is guaranteed than is there, and nobody takes the message
        there.away()
        apply(product, text(port, there, guaranteed="3_gpu"))
        until(lambda: "guarantees_scaled" in listed(product, "firing"), "it does not fire")
        assert any("More is guaranteed in pool main" in said for said in product.get("/admin/v1/status")["warnings"])
        # and the product is killed before it is told, and started again
        product.interrupt(signal.SIGKILL)
        product.wait()
        product.start()
        there.back()
        # then it is told, by both channels that want it
        until(lambda: scaled in there.told("/ops"), "it is not told")
        until(lambda: len(there.box.mails) > 1, "no e-mail came")
        until(lambda: noted(product, "guarantees_scaled") >= {"ops", "mail"}, "that it is told is not kept")
        # and after another kill it is not told again, while what is new is
        product.interrupt(signal.SIGKILL)
        product.wait()
        product.start()
        product.post("/v1/chat/completions", ASKED, "support")
        apply(product, text(port, there, guaranteed="3_gpu", month="0.000001"))
        until(lambda: ("budget_hard", "firing") in there.told("/ops"), "the budget is not told")
        assert there.told("/ops").count(scaled) == 1
        # and the tenant's own channel is told what is the tenant's, and nothing else
        until(lambda: there.told("/team"), "the tenant is not told")
        assert {name for name, _ in there.told("/team")} == {"budget_hard"}
        assert all(b"research" not in post.body for post in there.hook.posted if post.path == "/team")
        # and what is over is told as that
        apply(product, text(port, there, month="0.000001"))
        until(lambda: ("guarantees_scaled", "resolved") in there.told("/ops"), "its end is not told")
        assert listed(product, "resolved").keys() >= {"guarantees_scaled"}
        product.cli("alerts", "silence", listed(product, "firing")["budget_hard"]["id"], "--for", "1h")
        assert listed(product, "firing")["budget_hard"]["silenced_until_ns"] is not None
        product.cli("alerts", "unsilence", listed(product, "firing")["budget_hard"]["id"])
        assert listed(product, "firing")["budget_hard"]["silenced_until_ns"] is None
        metrics = product.get("/metrics")
        assert 'commonpool_alerts{alert="budget_hard",severity="critical"} 1' in metrics
        assert 'commonpool_alert_messages_total{channel="ops",outcome="delivered"}' in metrics


def test_a_tenant_sees_its_own(tmp_path: Path) -> None:
    with receivers() as there, engine() as port, running(tmp_path, text(port, there, guaranteed="3_gpu")) as product:
        until(lambda: listed(product, "firing"), "nothing fires")
        key = product.cli("keys", "create", "--scope", "admin", "--role", "viewer", "--tenant", "support")["key"]
        request = urllib.request.Request(
            f"{product.control}/admin/v1/alerts", headers={"authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request, timeout=180) as answer:
            body = answer.read().decode()
        assert "guarantees_scaled" not in body
        assert '"team"' in body
        assert '"ops"' not in body
        silence = urllib.request.Request(
            f"{product.control}/admin/v1/alerts/{listed(product, 'firing')['guarantees_scaled']['id']}/silence",
            data=b'{"until_ns":1}',
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(silence, timeout=180)
        with caught.value as refused:
            assert refused.code == 403
