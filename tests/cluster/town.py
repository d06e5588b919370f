"""A Ray cluster on this machine with the product on it, and what a test asks of both."""

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import psutil
import ray
from ray.cluster_utils import Cluster
from ray.exceptions import RayError

from commonpool import console
from commonpool.backends.ray import nodes
from commonpool.cluster import launch
from commonpool.config import read_sources
from tests.acceptance.product import free_ports
from tests.observe.collector import Collector

PROGRAM = (sys.executable, str(Path(__file__).with_name("engine.py")))
ATTEMPTS = 4
START_S = 180.0  # on a machine whose cores are all busy
NODE = {"num_cpus": 1, "num_gpus": 4, "object_store_memory": 80 * 1024 * 1024}

CONFIG = """
listen: {{gateway: 127.0.0.1:{gateway}, control: 127.0.0.1:{control}}}
timeouts: {{drain: 5s}}
pools: {{main: {{gpus: 16_gpu}}}}
models:
  tiny:
    version: v1
    gpu: 2_gpu
    replicas: 4
    slots: 2
    context: 2048
    engine: {{kind: embedded, file: m.gguf}}
prices: {{currency: EUR, gpu_hour: {{main: 3.60}}}}
observe: {{traces: {{endpoint: "{collector}", sample: 0%}}}}
tenants:
  support:
    tenant: {{guaranteed: 6_gpu, elastic_cap: 16_gpu}}
    queue: {{max_wait: 120s}}
    apps: {{default: {{cost_center: CC-1}}}}
  research:
    tenant: {{guaranteed: 6_gpu, elastic_cap: 16_gpu}}
    queue: {{max_wait: 120s}}
    apps: {{default: {{cost_center: CC-2}}}}
  single:
    tenant: {{guaranteed: 0_gpu, elastic_cap: 16_gpu}}
    queue: {{max_wait: 1h}}  # whatever was learned of how long requests take
    limits: {{concurrent_requests: 1}}
    apps: {{default: {{cost_center: CC-3}}}}
  hurried:
    tenant: {{guaranteed: 0_gpu, elastic_cap: 16_gpu}}
    queue: {{max_wait: 1h}}
    limits: {{requests: 5/min}}
    apps: {{default: {{cost_center: CC-4}}}}
"""


LISTENS = re.compile(r'^commonpool_gateway_listening\{node="([^"]+)"\} (\S+)$', re.MULTILINE)


class Answer(msgspec.Struct, frozen=True):
    """What a client got. `status` 0: the connection broke. `where` is the host of the engine that answered."""

    status: int
    where: str = ""
    request_id: str = ""
    headers: Mapping[str, str] = {}


class Town:
    """`hosts` are the addresses of the nodes that live; the first has the core. `collector` takes what is traced."""

    def __init__(self, folder: Path, collector: Collector) -> None:
        self.folder = folder
        self.collector = collector
        self.hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
        self.keys: dict[str, str] = {}
        self.core: Any = None
        self._gateway, self._control = free_ports(2)
        self._nodes: dict[str, Any] = {}
        self._cluster: Any = None
        self._flags = (folder / f"enough-{number}" for number in itertools.count())
        (folder / "m.gguf").write_bytes(b"GGUF")
        self.control = f"http://127.0.0.1:{self._control}"
        (folder / "commonpool.yaml").write_text(
            CONFIG.format(gateway=self._gateway, control=self._control, collector=collector.url)
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._begin_cluster()
                break
            except Exception:  # on cores that are all busy a node does not come up within Ray's own half a minute
                if attempt == ATTEMPTS - 1:
                    raise
        ray.init(address=self._cluster.address, namespace=launch.NAMESPACE, log_to_driver=False)
        self.begin()

    def _begin_cluster(self) -> None:
        self._cluster = Cluster()
        # Workers that are started beforehand, and what reads logs and scales, would be of no use.
        config = {"prestart_worker_first_driver": False}
        unused = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        try:
            self._cluster.add_node(node_ip_address=self.hosts[0], _system_config=config, **unused, **NODE)
            for host in self.hosts[1:]:
                self._nodes[host] = self._cluster.add_node(node_ip_address=host, **NODE)
        except BaseException:
            self._cluster.shutdown()
            raise

    def begin(self) -> None:
        """Start the product, or take over from the one that runs."""

        async def begin() -> Any:
            sources = read_sources(self.folder / "commonpool.yaml")
            self.core = await launch.start_core(sources, console.routes, PROGRAM)
            return await launch.answer(self.core.started)

        started = asyncio.run(begin())
        self.keys = {new.key.tenant: new.text for new in started.new_keys} or self.keys
        self.until(lambda: self.ready_replicas() == 4 and self.listening() == set(self.hosts))

    def stop(self) -> None:
        try:
            if self.core is not None:
                asyncio.run(launch.stop_core(self.core))
        finally:
            ray.shutdown()
            if self._cluster is not None:
                self._cluster.shutdown()

    def add_node(self, host: str) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._nodes[host] = self._cluster.add_node(node_ip_address=host, **NODE)
                break
            except Exception:  # as in `start`
                if attempt == ATTEMPTS - 1:
                    raise
                for each in psutil.Process().children():  # it may come up later, and be one node too many
                    with contextlib.suppress(psutil.Error):  # it has ended
                        if each.name() == "raylet" and f"--node_ip_address={host}" in each.cmdline():
                            each.kill()
        self.hosts.append(host)

    def kill_node(self, host: str) -> None:
        """All of its processes end at once, without a word."""
        self.hosts.remove(host)
        self._cluster.remove_node(self._nodes.pop(host), allow_graceful=False)

    def kill_core(self) -> None:
        os.kill(self.core_pid(), signal.SIGKILL)

    def kill_gateway(self, host: str) -> None:
        """The process that listens on the node's address ends at once."""
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        pid = next(each.pid for each in listening if each.laddr == (host, self._gateway))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def gateway_url(self, host: str) -> str:
        """Where its gateway is reached."""
        return f"http://{host}:{self._gateway}"

    def gateway(self, host: str) -> Any:
        """The node's gateway actor."""
        return ray.get_actor("gateway-" + next(node.id for node in nodes.living() if node.address == host))

    def gateway_session(self, host: str) -> str:
        """Which process of it this is; "" while there is none."""
        try:
            session: str = ray.get(self.gateway(host).session.remote(), timeout=START_S)
        except (ValueError, RayError):
            return ""
        return session

    def core_pid(self) -> int:
        return int((self.folder / "var" / "lock").read_text() or 0)  # it is empty while the next one takes it

    # -- what is asked -------------------------------------------------------------------------------------------------

    def get(self, path: str, key: str = "") -> Any:
        return json.loads(self.read(path, key))

    def read(self, path: str, key: str = "") -> str:
        """What the control plane answers, as text; to `key`, or to this machine."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(self.control + path, headers=headers)
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            text: str = answer.read().decode()
        return text

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            self.control + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return json.loads(answer.read())

    def status(self) -> Any:
        return self.get("/admin/v1/status")

    def replicas(self) -> dict[str, Any]:
        return {each["id"]: each for each in self.status()["replicas"] if each["state"] == "ready"}

    def ready_replicas(self) -> int:
        return len(self.replicas())

    def listening(self) -> set[str]:
        """The nodes whose gateways listen."""
        found = LISTENS.findall(self.read("/metrics"))
        return {node for node, listens in found if float(listens)}

    def settled(self) -> bool:
        """Nothing runs, nothing waits, and nothing is taken: whatever was answered is known to the core."""
        return (
            self.open_requests() == 0
            and self.in_use() == 0
            and not any(each["running"] for each in self.replicas().values())
        )

    def in_use(self) -> int:
        return sum(tenant["in_use_milli_gpu"] for tenant in self.status()["tenants"])

    def open_requests(self) -> int:
        return sum(tenant["running"] + tenant["waiting"] for tenant in self.status()["tenants"])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something of the running product; an answer that is not to be had, or is cut off, is no answer."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                if condition():
                    return
            time.sleep(0.1)
        raise AssertionError(f"it did not become so within {START_S} s; the product is now: {self.status()}")

    def job(self, job_id: str) -> Any:
        """A job's state, attempts and log."""
        story = self.get(f"/admin/v1/jobs/{job_id}")
        log = self.get(f"/admin/v1/jobs/{job_id}/log")["text"]
        return {"state": story["job"]["state"], "attempts": story["attempts"], "log": log}

    def records(self) -> list[dict[str, Any]]:
        """Every usage record."""
        self.get("/admin/v1/usage?by=tenant&since_ns=0")  # moves the newest into the store
        file = self.folder / "var" / "commonpool.db"
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("SELECT * FROM usage")]

    async def ask(self, client: aiohttp.ClientSession, host: str, text: str, tenant: str = "support") -> Answer:
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 5}
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        url = self.gateway_url(host) + "/v1/chat/completions"
        try:
            async with client.post(url, json=body, headers=headers) as answer:
                said = await answer.json()
                where = said["choices"][0]["message"]["content"] if answer.status == 200 else ""
                return Answer(answer.status, where, answer.headers.get("x-request-id", ""), dict(answer.headers))
        except aiohttp.ClientError:
            return Answer(0)

    def ask_all(self, *asked: tuple[str, str, str]) -> list[Answer]:
        """Ask at once: host, text and tenant of each."""

        async def main() -> list[Answer]:
            async with client() as session:
                return await asyncio.gather(*(self.ask(session, *each) for each in asked))

        return asyncio.run(main())

    def ask_until(self, condition: Callable[[], bool], *asked: tuple[str, str]) -> list[Answer]:
        """Ask at once: host and tenant of each. Whatever runs goes on running until the condition is met."""
        flag = next(self._flags)
        with ThreadPoolExecutor(1) as other:
            answers = other.submit(self.ask_all, *((host, f"until {flag}", tenant) for host, tenant in asked))
            try:
                self.until(condition)
            finally:
                flag.touch()
            return answers.result()


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=START_S), connector=aiohttp.TCPConnector(limit=0, force_close=True)
    )


class Load:
    """Clients that ask one after the other, `each` at every living host, in a thread until the `with` ends."""

    def __init__(self, town: Town, each: int = 4) -> None:
        self._town = town
        self._each = each
        self._over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.answers: dict[str, list[Answer]] = {host: [] for host in town.hosts}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over = True
        self._thread.join()

    async def _run(self) -> None:
        async with client() as session:
            await asyncio.gather(
                *(
                    self._ask(session, host, ("support", "research")[number % 2])
                    for host in self.answers
                    for number in range(self._each)
                )
            )

    async def _ask(self, session: aiohttp.ClientSession, host: str, tenant: str) -> None:
        while not self._over:
            answer = await self._town.ask(session, host, "slow 50", tenant)
            self.answers[host].append(answer)
            if answer.status == 0:
                await asyncio.sleep(0.2)

    def some(self, count: int) -> None:
        """Wait for so many more answers at every host that lives."""
        before = {host: len(answers) for host, answers in self.answers.items() if host in self._town.hosts}
        self._town.until(lambda: all(len(self.answers[host]) >= had + count for host, had in before.items()))

    def at(self, *hosts: str) -> list[Answer]:
        return [answer for host in hosts for answer in self.answers[host]]
