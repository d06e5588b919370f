"""The product in one process: what belongs to it."""

import asyncio
import os
from pathlib import Path

import msgspec
import psutil

from commonpool.app.house import LocalHouse
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
