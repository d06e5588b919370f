"""A PostgreSQL server of the tests' own: in a folder that goes with it, on a socket in that folder."""

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import psutil
import pytest

START_S = 180
_T = TypeVar("_T")
INITDB = ("--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8")
# As English does where it is not told otherwise: a text column that says nothing would be seen.
SORTING = ("--locale-provider=icu", "--icu-locale=en")


class PostgresServer:
    """A running server, until `close`. It may be killed and started again."""

    def __init__(self, fsync: str = "off") -> None:
        self._programs = _programs()
        self._fsync = fsync
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._numbers = itertools.count(1)
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to be root's
            user = next(each for each in pwd.getpwall() if each.pw_name in {"postgres", "nobody"})
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        made = subprocess.run(
            [self._programs / "initdb", "-D", "data", *INITDB, *SORTING],
            cwd=self._folder,
            check=False,
            capture_output=True,
            text=True,
            **self._as,
        )
        assert made.returncode == 0, made.stderr
        self.start()

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        settings = {"listen_addresses": "", "unix_socket_directories": self._folder, "fsync": self._fsync}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", *(f"--{name}={text}" for name, text in settings.items())],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                **self._as,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.run("SELECT 1")
            except (OSError, asyncpg.CannotConnectNowError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"PostgreSQL does not start: {(self._folder / 'log').read_text()}")
                time.sleep(0.05)
            else:
                return

    def processes(self) -> list[psutil.Process]:
        """All of its processes now."""
        return [*psutil.Process(self._process.pid).children(), psutil.Process(self._process.pid)]

    def kill(self) -> None:
        """`kill -9` for all its processes."""
        self._process.send_signal(signal.SIGSTOP)  # it makes no more of them
        processes = self.processes()
        for process in reversed(processes):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(processes, timeout=START_S)

    def close(self) -> None:
        """Ends it and removes its folder."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        shutil.rmtree(self._folder)

    def url(self, schema: str = "public", database: str = "postgres") -> str:
        """Where a store finds a schema of it."""
        return f"postgresql://postgres@/{database}?host={self._folder}&search_path={schema}"

    def create(self) -> str:
        """The name of a new, empty schema: as good as a new database, and there in no time."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE SCHEMA {name}")
        return name

    def drop(self, schema: str) -> None:
        """Removes a schema with all that is in it."""
        self.run(f"DROP SCHEMA {schema} CASCADE")

    def run(self, script: str, schema: str = "public") -> None:
        """Runs statements in a session of their own."""
        self._ask(schema, lambda connection: connection.execute(script))

    def rows(self, sql: str, schema: str = "public") -> list[tuple[Any, ...]]:
        """The rows of a question."""
        return [tuple(row) for row in self._ask(schema, lambda connection: connection.fetch(sql))]

    def _ask(self, schema: str, question: Callable[[Any], Awaitable[_T]]) -> _T:
        async def ask() -> _T:
            connection = await asyncpg.connect(self.url(schema))
            try:
                return await question(connection)
            finally:
                await connection.close()

        return asyncio.run(ask())


def _programs() -> Path:
    """The folder of PostgreSQL's programs: the newest that Debian has, or that of the first in PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    found = shutil.which("initdb")
    if folders:
        return folders[-1]
    if found is None:
        pytest.fail("There is no PostgreSQL to test with: install Debian's package postgresql, or put initdb in PATH.")
    return Path(found).resolve().parent
