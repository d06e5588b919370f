"""The real product in a process of its own, as an operator starts it, and what a test asks of it."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.leaks import none_in

WITHIN_S = 300.0  # whatever is waited for comes sooner or later, however busy the machine is
KEY = re.compile(r"cp_[0-9A-Za-z]+_[0-9A-Za-z]+")


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens at.

    They are below those that the kernel gives to whoever names none, so that nobody else is given one of them until it
    is used, and asking again hardly ever finds the same.
    """
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    last = given if given > 20_000 else 60_000  # where it gives all, chance has to do
    chance = random.SystemRandom()  # the usual one is Hypothesis' own, and begins anew with each example
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = chance.randrange(10_000, last)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
        return found


def wait_for_a_month() -> None:
    """Return when none ends soon: budgets begin anew then, and a test of one would be in two of them."""
    now = datetime.now(UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    left_s = ((first + timedelta(days=32)).replace(day=1) - now).total_seconds()
    if left_s < WITHIN_S:
        time.sleep(left_s + 1)


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "commonpool", *args]


class Product:
    """A running product. `keys` are those shown at its first start, by tenant."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        gateway, control = free_ports(2)
        self.gateway = f"http://127.0.0.1:{gateway}"
        self.control = f"http://127.0.0.1:{control}"
        self.config = folder / "commonpool.yaml"
        self.listen = f"listen: {{gateway: 127.0.0.1:{gateway}, control: 127.0.0.1:{control}}}\n"
        self.config.write_text(self.listen + config)
        self.output = folder / "up.out"
        self.keys: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, **env: str) -> None:
        """Without waiting for anything."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command("up", str(self.config)),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def start(self, **env: str) -> None:
        self.launch(**env)
        self.wait_ready()
        self.take_keys()

    def take_keys(self) -> None:
        if not self.keys:
            self.keys = self._new_keys()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.output.read_text()}")
            with contextlib.suppress(OSError):
                if self.get("/readyz", base=self.gateway) is not None:
                    return
            time.sleep(0.05)
        raise AssertionError(f"not ready:\n{self.output.read_text()}")

    def announced(self) -> str:
        """What it says once it is ready, which is a moment after it serves."""
        deadline = time.monotonic() + WITHIN_S
        while "Ctrl-C stops" not in (said := self.output.read_text()):
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        return said

    def _new_keys(self) -> dict[str, str]:
        """A key for each tenant, made as an operator does."""
        tenants = [tenant["name"] for tenant in self.get("/admin/v1/status")["tenants"]]
        return {tenant: self.cli("keys", "create", "--tenant", tenant, "--app", "default")["key"] for tenant in tenants}

    def cli(self, *args: str, code: int = 0) -> Any:
        done = subprocess.run(
            [*command(*args), "--json"],
            capture_output=True,
            cwd=self.folder,
            env={**os.environ, "COMMONPOOL_CONTROL": self.control},
            check=False,
            timeout=WITHIN_S,
        )
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        none_in(done.stderr, "what a command says")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def get(self, path: str, base: str | None = None) -> Any:
        with urllib.request.urlopen((base or self.control) + path, timeout=WITHIN_S) as answer:
            body = answer.read()
        none_in(body, f"the answer at {path}")
        try:
            return json.loads(body)
        except ValueError:
            return body.decode()

    def post(self, path: str, body: Mapping[str, Any], tenant: str) -> Any:
        request = urllib.request.Request(
            self.gateway + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {self.keys[tenant]}"},
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return json.loads(answer.read())

    def records(self) -> list[dict[str, Any]]:
        """Every usage record, in order of arrival, what ended before the call included."""
        self.get("/admin/v1/usage?by=tenant&since_ns=0")  # moves the newest into the store
        return self.stored()

    def stored(self) -> list[dict[str, Any]]:
        """What the store has of them, for a product that runs or has stopped."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.folder / 'var' / 'commonpool.db'}?mode=ro", uri=True)
        ) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("SELECT * FROM usage ORDER BY arrived_ns")]

    def children(self) -> list[int]:
        """Processes below the product's own, found while it lives."""
        assert self.process is not None
        return _descendants(self.process.pid)

    def interrupt(self, signum: int = signal.SIGINT) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def wait(self, timeout: float = WITHIN_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                with contextlib.suppress(OSError):  # where it may be read so
                    (self.folder / "metrics.txt").write_text(self.get("/metrics"))
            finally:
                self.interrupt()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that ends meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *_descendants(int(child))]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def running(folder: Path, config: str) -> Iterator[Product]:
    product = Product(folder, config)
    try:
        product.start()
        yield product
    finally:
        product.stop()
