"""The product in one process: what belongs to it."""

import asyncio
import os
from pathlib import Path

import msgspec
import psutil
import pytest

from commonpool.app.house import LocalHouse
from commonpool.backends.base import BackendError
from commonpool.config import Config, parse
from commonpool.control.replicas import StartError
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task
from tests.api.fakes import FakeOperations


def test_processes_of_jobs_are_the_products_own(tmp_path: Path) -> None:
    async def story() -> None:
        house = LocalHouse()
        assert house.processes() == (os.getpid(),)
        config = msgspec.structs.replace(FakeOperations().config(), state=tmp_path)
        job = Job("j1", "a", "default", "main", "batch", 1000)
        handle = await house.jobs(config).start(job, Task(("/bin/sleep", "1000"), "/"), JobAttempt(1, "", (), 0))
        mine, runner = house.processes()
        assert mine == os.getpid()
        assert [child.name() for child in psutil.Process(runner).children()] == ["sleep"]
        handle.stop()
        await handle.wait()
        assert house.processes() == (os.getpid(),)

    asyncio.run(story())


POOL = """\
nodes: {n1: {gpus: 1}, n2: {gpus: 1}}
pools: {main: {isolation: %s}}
models: {m: {version: 1, gpu: 1, slots: 1, context: 10, engine: %s}}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants: {t: {}}
"""
EMBEDDED = "{kind: embedded, file: x}"
ATTACHED = "{kind: attached, urls: ['https://gpu-1'], devices: [n1/0]}"


@pytest.mark.parametrize(
    ("level", "engine", "nodes", "kept"),
    [
        ("shared", EMBEDDED, 2, True),
        ("guaranteed", EMBEDDED, 2, True),
        ("node", EMBEDDED, 2, False),
        ("node", EMBEDDED, 1, True),  # this machine
        ("node", ATTACHED, 2, True),
    ],
)
def test_one_process_does_not_promise_machines_that_it_does_not_have(
    level: str, engine: str, nodes: int, kept: bool
) -> None:
    config = parse((POOL % (level, engine)).replace(", n2: {gpus: 1}" if nodes == 1 else "\0", ""))
    if kept:
        LocalHouse().check(config)
    else:
        with pytest.raises(
            StartError, match=r"Model m cannot be served\. Pool main demands isolation node, and without"
        ):
            LocalHouse().check(config)


def test_nor_for_jobs(tmp_path: Path) -> None:
    def state(text: str) -> Config:
        return msgspec.structs.replace(parse(text), state=tmp_path / "state")

    apart = state(POOL % ("node", ATTACHED))
    house = LocalHouse()
    house.check(apart)
    jobs = house.jobs(apart)
    job, task = Job("j1", "t", "default", "main", "batch", 1000), Task(("/bin/true",), "/")
    with pytest.raises(BackendError, match=r"Pool main demands isolation node, .*; start it with --backend ray"):
        jobs.check(job, task)
    house.check(state(POOL % ("shared", ATTACHED)))  # applied since
    jobs.check(job, task)


def test_users_that_are_not_there_are_said_at_the_start() -> None:
    users = "access: {local: false}\njobs: {users: {t: no-such-user}}\n"
    with pytest.raises(StartError, match=r"jobs\.users names 'no-such-user'"):
        LocalHouse().check(parse(POOL % ("shared", EMBEDDED) + users))
