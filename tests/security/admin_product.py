"""The real product in this process, over SQLite, in which two tenants have one of everything; and those who call it.

Nothing stands in for anything of the product's but the engine, and the place where jobs run: what is to be run comes
from whoever calls, so jobs do nothing here.
"""

import asyncio
import base64
import contextlib
import gc
import re
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec
from starlette.types import ASGIApp

from commonpool.api import routes
from commonpool.app.house import LocalHouse
from commonpool.app.product import Product
from commonpool.backends.joblog import LogPart
from commonpool.backends.jobrun import Exit
from commonpool.backends.jobs import JobBackend
from commonpool.config import Config, parse_sources, read_sources
from commonpool.core.firing import Episode
from commonpool.core.model import Job
from commonpool.store.alerts import KeptEpisode
from commonpool.store.jobs import JobAttempt, Task
from commonpool.store.sqlite import SqliteStore
from tests.backends.scripted import ScriptedEngine, scripted
from tests.control.alerting.receivers import Hook, hook
from tests.gateway.fakes import chat_answer
from tests.security.matrix_world import APPS, FOREIGN, OWN, PASSWORD, Things, over_budget

T = TypeVar("T")
MASTER: Final = base64.b64encode(b"the master key of this one test!").decode()
KEY: Final = re.compile(r"cp_[0-9A-Za-z]{6,}_[0-9A-Za-z]{10,}")
HASH: Final = "$argon2"
URL: Final = "https://127.0.0.1"
ELSEWHERE: Final = ("192.0.2.7", 50000)
HERE: Final = ("127.0.0.1", 50000)
CONFIG: Final = """
listen: {{gateway: 127.0.0.1:0, control: 127.0.0.1:0}}
secrets: {{master_key: "file:master"}}
pools:
  main: {{gpus: 4_gpu}}
models:
  echo:
    version: v1
    gpu: 1_gpu
    slots: 4
    context: 2048
    engine: {{kind: attached, adapter: openai, urls: ["http://127.0.0.1:{port}"]}}
prices:
  currency: EUR
  gpu_hour: {{main: 2.50}}
  meters: {{request: 0.000001, storage_gib_hour: 0.01}}
jobs: {{submitters: tenants}}
alerts: {{channels: {{ops: {{kind: webhook, url: "{hook}"}}}}}}
access:
  roles:
    - {{role: tenant-admin, tenant: {own}, account: clare}}
tenants:
  {own}:
    tenant: {{guaranteed: 2_gpu, elastic_cap: 3_gpu, hard_cap: 4_gpu}}
    apps: {{{own_app}: {{}}}}
  {foreign}:
    tenant: {{guaranteed: 2_gpu, elastic_cap: 3_gpu, hard_cap: 4_gpu}}
    apps: {{{foreign_app}: {{}}}}
"""


class Idle:
    """An attempt at a job that does nothing until it is stopped."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def wait(self) -> Exit:
        await self._stopped.wait()
        return Exit(0, time.time_ns())

    def checkpoint(self) -> None:
        """There is nothing to save."""

    def stop(self) -> None:
        self._stopped.set()


class IdleJobs:
    """A machine on which no job does anything."""

    def check(self, job: Job, task: Task) -> None:
        """All is well."""

    async def start(self, job: Job, task: Task, attempt: JobAttempt) -> Idle:
        del job, task, attempt
        return Idle()

    async def adopt(self, job: Job, attempt: JobAttempt) -> Idle:
        del job, attempt
        return Idle()

    def log(self, job_id: str, after: str) -> LogPart:
        return LogPart(f"{job_id} printed this", after, more=False)

    def forget(self, job_id: str) -> None:
        """Nothing is kept."""


class House(LocalHouse):
    """One process on one machine, but for jobs."""

    def jobs(self, config: Config) -> JobBackend:  # type: ignore[override] # of `LocalHouse`, not of `House`
        del config
        return IdleJobs()


class World(msgspec.Struct):
    """`callers` are headers by name, `secrets` what nobody may read anywhere.

    `things` are what each tenant has now, `markers` all that it ever had.
    """

    product: Product
    application: ASGIApp
    folder: Path
    things: dict[str, Things]
    markers: dict[str, set[str]]
    callers: dict[str, dict[str, str]]
    secrets: set[str]
    session: str = ""  # of the person who is logged in

    async def ask(self, request: httpx.Request, peer: tuple[str, int] = ELSEWHERE) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.application, client=peer)) as client:
            return await client.send(request)

    async def make(self, path: str, body: Mapping[str, Any], who: str = "") -> Any:
        """As one of the callers, or as the operator on the machine itself."""
        answer = await self.ask(httpx.Request("POST", URL + path, headers=self.callers.get(who), json=body), HERE)
        assert answer.is_success, answer.text
        return answer.json()

    async def key(self, who: str, about: Mapping[str, Any]) -> str:
        """A key, and whoever calls with it; its id."""
        made = await self.make("/admin/v1/keys", about)
        self.secrets.add(made["key"])
        self.callers[who] = {"authorization": f"Bearer {made['key']}"}
        return str(made["about"]["id"])

    async def settle(self, tenant: str) -> None:
        """The tenant's callers, a release, and its prompt log."""
        await self.key(f"tenant-admin of {tenant}", {"scope": "admin", "role": "tenant-admin", "tenant": tenant})
        await self.key(f"app of {tenant}", {"tenant": tenant, "app": APPS[tenant]})
        await self.make("/admin/v1/releases", {"tenant": tenant, "milli_gpu": 100, "reason": _note(tenant)})
        await self.renew(tenant)

    async def renew(self, tenant: str) -> None:
        """The tenant has a key, a job, a request and a prompt log that nobody has touched yet."""
        for job in (await self.ask(httpx.Request("GET", f"{URL}/admin/v1/jobs?tenant={tenant}"), HERE)).json()["jobs"]:
            await self.make(f"/admin/v1/jobs/{job['id']}/cancel", {})
        about = {"tenant": tenant, "app": APPS[tenant]}
        spare = await self.key(f"spare app of {tenant}", {**about, "note": _note(tenant)})
        job = {"command": ["train", _note(tenant)], "cwd": "/", "hardware": {"milli_gpu": 1000}, "name": _note(tenant)}
        made = await self.make("/admin/v1/jobs", {**job, **about})
        await self.make(f"/admin/v1/tenants/{tenant}/prompts/on", {}, f"tenant-admin of {tenant}")
        request = await self._request(tenant, _note(tenant))
        self.things[tenant] = Things(tenant, APPS[tenant], made["id"], request, spare, _note(tenant), self.session)
        self.markers.setdefault(tenant, set()).update(self.things[tenant].markers)

    async def _request(self, tenant: str, prompt: str) -> str:
        """A request that it sends the data plane; its prompt log has it."""
        async with httpx.AsyncClient(base_url=self.product.started().gateway, verify=False) as client:
            answer = await client.post(
                "/v1/chat/completions",
                json={"model": "echo", "messages": [{"role": "user", "content": prompt}]},
                headers=self.callers[f"app of {tenant}"],
            )
        assert answer.status_code == 200, answer.text
        name: str = answer.headers["x-request-id"]
        return name

    async def people(self) -> None:
        """There is an account that nobody calls with, and somebody who is logged in to another one."""
        await self._account("ann")
        me = await self.ask(httpx.Request("GET", f"{URL}/admin/v1/me", headers=self.callers.get("person")))
        if me.is_success:
            return
        await self._account("clare")
        login = {"name": "clare", "password": PASSWORD}
        answer = await self.ask(httpx.Request("POST", f"{URL}/admin/v1/sessions", json=login))
        assert answer.is_success, answer.text
        cookie = answer.headers["set-cookie"].partition(";")[0]
        self.secrets.add(cookie.partition("=")[2])
        self.callers["person"] = {"cookie": cookie, "origin": URL}
        mine = await self.ask(httpx.Request("GET", f"{URL}/admin/v1/me/sessions", headers=self.callers["person"]))
        self.session = next(each["id"] for each in mine.json()["sessions"] if each["current"])

    async def _account(self, name: str) -> None:
        known = httpx.Request("POST", f"{URL}/admin/v1/accounts/{name}/password", json={"password": PASSWORD})
        there = await self.ask(known, HERE)
        if not there.is_success:
            await self.make("/admin/v1/accounts", {"name": name, "password": PASSWORD})

    def keep_secrets(self) -> None:
        """What the database has of secrets must not be told either: salts, digests, hashes, wrapped keys."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.folder / 'var' / 'commonpool.db'}?mode=ro", uri=True)
        ) as db:
            raw = [each for row in db.execute("SELECT salt, digest FROM keys") for each in row]
            raw += [row[0] for row in db.execute("SELECT digest FROM sessions")]
            raw += [row[0] for row in db.execute("SELECT wrapped FROM data_keys")]
            hashes = [row[0] for row in db.execute("SELECT password FROM accounts")]
        assert len(raw) >= 10
        assert any(each.startswith(HASH) for each in hashes)
        for each in raw:
            self.secrets |= {each.hex(), base64.b64encode(each).decode().rstrip("="),
                             base64.urlsafe_b64encode(each).decode().rstrip("=")}  # fmt: skip
        self.secrets |= {each for each in hashes if each}


def _note(tenant: str) -> str:
    return f"note-of-{tenant}"


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """A running product with an object of each kind of both tenants."""
    collected = gc.get_threshold()
    async with scripted() as engine, hook() as receiver:
        product = await _start(folder, engine, receiver)
        try:
            here = World(product, routes.application(product), folder, {}, {}, {"nobody": {}}, {MASTER, PASSWORD})
            await here.key("platform-admin", {"scope": "admin"})
            await here.people()
            for tenant in (OWN, FOREIGN):
                await here.settle(tenant)
            here.keep_secrets()
            product.feed().close()  # so that a stream of events ends with what there is
            yield here
        finally:
            await product.stop(asyncio.Event())
            gc.set_threshold(*collected)  # the product sets another one for its process
            gc.unfreeze()


class Living:
    """A world that goes on in a thread of its own: a product whose loop stands still takes its engines for dead."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._running = world(folder)
        try:
            self.known = self.do(_entered(self._running))
        except BaseException:
            self._end()
            raise

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        try:
            self.do(_left(self._running))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _entered(running: contextlib.AbstractAsyncContextManager[World]) -> World:
    return await running.__aenter__()


async def _left(running: contextlib.AbstractAsyncContextManager[World]) -> None:
    await running.__aexit__(None, None, None)


def _alert(folder: Path) -> None:
    """Something is wrong with what each tenant has, and is kept from before the product started."""
    store = SqliteStore(folder / "var")
    now = time.time_ns()
    store.save_alerts([KeptEpisode(Episode(over_budget(tenant), now, now, now)) for tenant in (OWN, FOREIGN)])
    store.close()


async def _start(folder: Path, engine: ScriptedEngine, receiver: Hook) -> Product:
    body = chat_answer("done")
    engine.raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    (folder / "master").write_text(MASTER)
    (folder / "master").chmod(0o600)
    path = folder / "commonpool.yaml"
    names = {"own": OWN, "own_app": APPS[OWN], "foreign": FOREIGN, "foreign_app": APPS[FOREIGN]}
    path.write_text(CONFIG.format(port=engine.port, hook=receiver.url, **names))
    _alert(folder)
    sources = read_sources(path)
    product = Product(sources, parse_sources(sources), house=House())
    await product.start()
    return product
