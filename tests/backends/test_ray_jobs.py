"""Given what becomes of the calls of a job's host, then what becomes of the job."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from commonpool.backends.base import BackendError
from commonpool.backends.jobrun import Exit
from commonpool.backends.ray.jobs import GONE, RayJob, RayJobs
from commonpool.backends.ray.nodes import Nodes
from commonpool.core.model import Job
from commonpool.store.jobs import JobAttempt, Task

JOB = Job("j1", "a", "default", "main", "batch", 1000)
ATTEMPT = JobAttempt(1, "n0", ("n0/0",), 0)
TASK = Task(("true",), "/")
END = Exit(0, 7)
REFUSED = BackendError("Job j1 cannot be started: 'true' cannot be run.")


class Method:
    """An actor's method: each call has the next answer, and the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.calls = 0
        self._answers = list(answers)

    def remote(self, *_: Any) -> Awaitable[Any]:
        self.calls += 1
        return self._answer(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    async def _answer(self, answer: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Host:
    def __init__(self, wait: Method, stop: Method | None = None, start: Method | None = None) -> None:
        self.wait = wait
        self.start = Method(None) if start is None else start
        self.stop = Method(None) if stop is None else stop


class Place:
    """Where the job is. The first `missing` times there is no host."""

    def __init__(self, host: Host, missing: int = 0) -> None:
        self.there = True
        self.over = False
        self._host = host
        self._missing = missing

    async def host(self) -> Host:
        if self._missing:
            self._missing -= 1
            raise BackendError("there is none now")
        return self._host

    def job(self) -> RayJob:
        return RayJob(JOB, ATTEMPT, self.host, there=lambda: self.there, over=self._ends, again_s=0.001)

    def _ends(self) -> None:
        self.over = True


def unavailable() -> ActorUnavailableError:
    return ActorUnavailableError("it restarts", None)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await work()

    asyncio.run(bounded())


def test_what_became_of_a_start_that_was_not_answered_is_found_out() -> None:
    async def main() -> None:
        start = Method(unavailable())
        job = Place(Host(Method(END), start=start)).job()
        await job.start(TASK)
        assert await job.wait() == END
        assert start.calls == 1  # it may have been started, so not again

    run(main)


@pytest.mark.parametrize(
    "error",
    [ActorDiedError(), RayTaskError("start", "a page", REFUSED)],  # type: ignore[no-untyped-call]
)
def test_what_cannot_be_started_is_said_in_a_sentence(error: Exception) -> None:
    async def main() -> None:
        job = Place(Host(Method(END), start=Method(error))).job()
        with pytest.raises(BackendError, match=r"^Job j1 cannot be started[^\n]*$"):
            await job.start(TASK)

    run(main)


def test_an_end_is_waited_for_through_everything_that_is_lost_meanwhile() -> None:
    async def main() -> None:
        wait = Method(None, unavailable(), TimeoutError(), None, END)
        place = Place(Host(wait), missing=2)
        assert await place.job().wait() == END
        assert wait.calls == 5
        assert place.over

    run(main)


def test_the_job_of_a_node_that_is_gone_is_given_up() -> None:
    async def main() -> None:
        place = Place(Host(Method(unavailable())))
        waiting = asyncio.ensure_future(place.job().wait())
        await asyncio.sleep(0.01)
        assert not place.over
        place.there = False
        end = await waiting
        assert (end.status, end.ran, end.reason) == (None, False, GONE)
        assert place.over

    run(main)


def test_what_the_host_raises_is_raised_as_it_is() -> None:
    async def main() -> None:
        error = BackendError("The runner does not say that it has started.")
        place = Place(Host(Method(RayTaskError("wait", "a page of it", error))))  # type: ignore[no-untyped-call]
        with pytest.raises(BackendError) as raised:
            await place.job().wait()
        assert str(raised.value) == str(error)
        assert place.over

    run(main)


def test_a_stop_is_asked_for_until_the_host_has_heard_it() -> None:
    async def main() -> None:
        stop = Method(unavailable(), TimeoutError(), None)
        job = Place(Host(Method(None), stop), missing=1).job()
        job.stop()
        while stop.calls < 3:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert stop.calls == 3

    run(main)


def test_without_its_node_no_job_is_started_and_one_of_before_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        jobs = RayJobs(Nodes(), tmp_path)
        with pytest.raises(BackendError, match="node 'n0' is not in the cluster"):
            await jobs.start(JOB, TASK, ATTEMPT)
        end = await (await jobs.adopt(JOB, ATTEMPT)).wait()
        assert end.reason == GONE
        assert jobs.kept() == set()

    run(main)
