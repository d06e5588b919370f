"""Child processes: what they may do wrong, what is said then, and that none is ever left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from commonpool.backends.base import BackendError
from commonpool.backends.local import LocalBackend, child_environment
from commonpool.backends.probe import Health, health, prove
from commonpool.config.structs import EmbeddedEngine, Model
from commonpool.core.model import NS_PER_S
from commonpool.engines.registry import EMBEDDED
from tests.backends.processes import alive, children, ended, none_left_by_a_failure
from tests.engines.running import replica

FAKE = str(Path(__file__).with_name("fake_child.py"))
LONG_NS = 60 * NS_PER_S

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async test on either loop, bounded in time, and sees that no child is left."""

    def bounded(main: Callable[[], Awaitable[None]]) -> None:
        async def inner() -> None:
            before = children(os.getpid())
            with none_left_by_a_failure():
                async with asyncio.timeout(240):
                    await main()
                assert children(os.getpid()) == before

        (uvloop.run if request.param == "uvloop" else asyncio.run)(inner())

    return bounded


@pytest.fixture
def model(tmp_path: Path) -> Model:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    return Model("m/1", "1", "gpus", 1000, 1, 2, 512, 1024, EmbeddedEngine(str(file)))


def backend(tmp_path: Path, mode: str, start_timeout_ns: int = LONG_NS) -> LocalBackend:
    return LocalBackend(tmp_path / "engines", program=(sys.executable, FAKE, mode), start_timeout_ns=start_timeout_ns)


def test_a_child_that_is_well_is_reached_and_stopped(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        handle = await backend(tmp_path, "well").start(model, 0, replica("m-0.1"))
        assert (handle.target.replica_id, handle.target.served_model) == ("m-0.1", "m/1")
        assert handle.target.adapter == EMBEDDED
        assert (await health(handle.target, LONG_NS))[0] is Health.GOOD
        await prove(handle.target, LONG_NS)
        assert handle.pid is not None
        assert alive(handle.pid)
        await handle.stop(LONG_NS)
        await handle.stop(LONG_NS)
        assert not alive(handle.pid)
        assert (tmp_path / "engines" / "m_1-0.log").read_text() == "--- m-0.1\nserving m/1\n"

    run(main)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("exits", r"replica m-0\.1 exited with status 3; see .*m_1-0\.log\. Its last lines: .*no GPU was found"),
        ("crashes", r"replica m-0\.1 was ended by SIGSEGV"),
        ("errs", r"replica m-0\.1 could not start: the weights are for another engine"),
        ("garbage", r"replica m-0\.1 printed 'Loading\.\.\.', not its address"),
        ("endless", r"replica m-0\.1 printed an endless line, not its address"),
        ("nowhere", r"replica m-0\.1 reported no address"),
    ],
)
def test_a_child_that_does_not_come_up_is_one_sentence(
    tmp_path: Path, model: Model, run: Run, mode: str, sentence: str
) -> None:
    async def main() -> None:
        with pytest.raises(BackendError, match=sentence) as caught:
            await backend(tmp_path, mode).start(model, 0, replica("m-0.1"))
        assert "\n" not in str(caught.value)

    run(main)


@pytest.mark.parametrize("mode", ["mute", "closes"])
def test_a_child_that_says_nothing_is_given_up(tmp_path: Path, model: Model, run: Run, mode: str) -> None:
    async def main() -> None:
        with pytest.raises(BackendError, match=r"did not listen within 0\.5 s"):
            await backend(tmp_path, mode, NS_PER_S // 2).start(model, 0, replica("m-0.1"))

    run(main)


def test_a_start_that_is_not_wanted_any_more_leaves_no_child(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        starting = asyncio.ensure_future(backend(tmp_path, "mute").start(model, 0, replica("m-0.1")))
        while not children(os.getpid()):  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(main)


def test_a_program_that_is_not_there_is_one_sentence(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(BackendError, match=r"m-0\.1 cannot be started: No such file"):
            await LocalBackend(tmp_path, program=(str(tmp_path / "none"),)).start(model, 0, replica("m-0.1"))

    run(main)


def test_the_end_of_a_child_is_noticed(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        handle = await backend(tmp_path, "well").start(model, 0, replica("m-0.1"))
        assert handle.pid is not None
        os.kill(handle.pid, signal.SIGKILL)
        assert "m-0.1 was ended by SIGKILL" in await handle.wait()
        await handle.stop(LONG_NS)

    run(main)


def test_a_child_that_will_not_go_is_ended_by_force(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        handle = await backend(tmp_path, "stubborn").start(model, 0, replica("m-0.1"))
        await handle.stop(NS_PER_S // 10)
        assert "SIGKILL" in await handle.wait()

    run(main)


def test_a_noisy_child_neither_stalls_nor_fills_the_disk(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        handle = await backend(tmp_path, "noisy").start(model, 0, replica("m-0.1"))
        await prove(handle.target, LONG_NS)
        await handle.stop(LONG_NS)

    run(main)


def test_a_child_sees_none_of_its_parents_secrets(
    tmp_path: Path, model: Model, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "topsecret")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")

    async def main() -> None:
        handle = await backend(tmp_path, "environment").start(model, 0, replica("m-0.1"))
        await handle.stop(LONG_NS)

    run(main)
    lines = (tmp_path / "engines" / "m_1-0.log").read_text().splitlines()
    seen = json.loads(next(line for line in lines if line.startswith("{")))
    assert "topsecret" not in seen.values()
    assert seen["OPENBLAS_NUM_THREADS"] == "1"
    assert seen["PATH"] == os.environ["PATH"]


def test_a_child_sees_the_devices_of_its_replica_only(tmp_path: Path, model: Model, run: Run) -> None:
    async def main() -> None:
        given = replica("m-0.1", ("here/1", "here/3"))
        handle = await backend(tmp_path, "environment").start(model, 0, given)
        await handle.stop(LONG_NS)

    run(main)
    lines = (tmp_path / "engines" / "m_1-0.log").read_text().splitlines()
    seen = json.loads(next(line for line in lines if line.startswith("{")))
    assert seen["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_the_environment_is_a_list_of_what_is_needed() -> None:
    given = {
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "x",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "0",
        "PGPASSWORD": "y",
    }
    assert child_environment(given) == {"PATH": "/bin", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "0"}


def test_a_file_that_is_missing_is_known_beforehand(tmp_path: Path, model: Model) -> None:
    local = backend(tmp_path, "well")
    local.check(model)
    Path(model.engine.file if isinstance(model.engine, EmbeddedEngine) else "").unlink()
    with pytest.raises(BackendError, match=r"does not exist; set models\.m/1\.engine\.file"):
        local.check(model)


PARENT = """
import asyncio, pathlib, sys
from commonpool.backends.local import LocalBackend
from tests.engines.running import model, replica
async def main():
    handle = await LocalBackend(pathlib.Path(sys.argv[1])).start(model(slots=1, context_tokens=256), 0, replica())
    print(handle.pid, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["child runs", "child is stopped"])
def test_kill_9_of_the_parent_leaves_no_child(tmp_path: Path, frozen: bool) -> None:
    """Also a child that cannot look at its stdin, as one that native code keeps busy: the kernel ends it."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=root) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        if frozen:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
    assert ended(pid)
