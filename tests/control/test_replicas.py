"""The supervisor: replicas follow the configuration, and nothing that runs is cut."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from commonpool.config.structs import Config, Model
from commonpool.control.replicas import StartError, Supervisor
from commonpool.control.seat import State
from commonpool.core.model import NS_PER_S
from tests.backends.processes import alive, children
from tests.control.fakes import Diary, Stage, Time, attached, config, embedded, settled, stage, until
from tests.engines import running
from tests.engines.running import run


def states(supervisor: Supervisor) -> dict[str, State]:
    return {status.id: status.state for status in supervisor.status()}


async def started(at: Stage, running_config: Config) -> Supervisor:
    supervisor = at.supervisor(running_config)
    await supervisor.first_start()
    await until(lambda: all(state is State.READY for state in states(supervisor).values()))
    at.diary.entries.clear()
    return supervisor


# -- the first start ---------------------------------------------------------------------------------------------------


def test_the_first_start_returns_when_each_model_has_a_ready_replica() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("a", replicas=3), embedded("b")))
            await supervisor.first_start()
            ready = {replica_id.partition("-")[0] for replica_id in at.diary.wrote("ready")}
            assert ready == {"a", "b"}
            await until(lambda: len(at.diary.wrote("ready")) == 4)
            assert states(supervisor) == dict.fromkeys(["a-0.1", "a-1.1", "a-2.1", "b-0.1"], State.READY)
            await supervisor.stop()
            assert supervisor.status() == []
            assert sorted(at.diary.wrote("lost")) == ["a-0.1", "a-1.1", "a-2.1", "b-0.1"]

    run(main)


def test_at_most_two_start_at_once() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            supervisor = at.supervisor(config(embedded("a", replicas=6)))
            starting = asyncio.ensure_future(supervisor.first_start())
            await until(lambda: at.backend.starting == 2)
            await settled()
            at.backend.gate.set()
            await starting
            await until(lambda: len(at.diary.wrote("ready")) == 6)
            assert at.backend.starting_max == 2
            await supervisor.stop()

    run(main)


def test_no_models_are_ready_at_once() -> None:
    async def main() -> None:
        async with stage() as at:
            await at.supervisor(config()).first_start()

    run(main)


def test_what_can_be_known_beforehand_stops_the_start_before_anything_runs() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.unfit["b"] = "The file of model b does not exist."
            supervisor = at.supervisor(config(embedded("a"), embedded("b")))
            with pytest.raises(StartError, match=r"^The file of model b does not exist\.$"):
                await supervisor.first_start()
            assert at.backend.started == []

    run(main)


def test_a_model_that_cannot_start_ends_the_start_and_leaves_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.broken["b"] = "The engine of b exited with status 1."
            supervisor = at.supervisor(config(embedded("a"), embedded("b", replicas=2)))
            with pytest.raises(
                StartError, match=r"^Model b cannot be served\. The engine of b exited with status 1\.$"
            ):
                await supervisor.first_start()
            assert supervisor.status() == []
            assert at.diary.wrote("stopped") == at.diary.wrote("ready") == ["a-0.1"]

    run(main)


def test_a_start_that_is_abandoned_can_be_stopped() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            supervisor = at.supervisor(config(embedded("a", replicas=3)))
            starting = asyncio.ensure_future(supervisor.first_start())
            await until(lambda: at.backend.starting == 2)
            starting.cancel()
            await supervisor.stop()
            assert (supervisor.status(), at.backend.starting) == ([], 0)

    run(main)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_what_did_not_change_is_not_touched() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a"), embedded("b")))
            await supervisor.apply(config(embedded("b"), embedded("a"), embedded("c")))
            assert at.diary.entries == [("ready", "c-0.1")]
            assert list(states(supervisor)) == ["b-0.1", "a-0.1", "c-0.1"]
            await supervisor.apply(config(embedded("a")))
            assert sorted(at.diary.wrote("draining")) == ["b-0.1", "c-0.1"]
            assert states(supervisor) == {"a-0.1": State.READY}
            await supervisor.stop()

    run(main)


def test_more_and_fewer_replicas_leave_the_others_alone() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a", replicas=2)))
            await supervisor.apply(config(embedded("a", replicas=3)))
            await supervisor.apply(config(embedded("a", replicas=1)))
            assert at.diary.wrote("ready") == ["a-2.1"]
            assert sorted(at.diary.wrote("lost")) == ["a-1.1", "a-2.1"]
            await supervisor.stop()

    run(main)


def test_attached_replicas_are_known_by_their_url() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(attached("a", "http://x", "http://y")))
            await supervisor.apply(config(attached("a", "http://y", "http://z")))
            assert at.diary.wrote("lost") == ["a-0.1"]
            assert at.diary.wrote("ready") == ["a-1.2"]
            await supervisor.stop()

    run(main)


def test_new_ones_come_before_the_old_ones_go_where_there_is_room() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a")))
            at.diary.running["a-0.1"] = 1
            change = asyncio.ensure_future(supervisor.apply(config(embedded("a", version="2"))))
            await until(lambda: at.diary.wrote("draining"))
            assert at.diary.entries == [("ready", "a-0.2"), ("draining", "a-0.1")]
            await settled()
            assert states(supervisor)["a-0.1"] is State.DRAINING
            at.diary.running["a-0.1"] = 0
            await change
            assert at.diary.wrote("lost") == ["a-0.1"]
            assert states(supervisor) == {"a-0.2": State.READY}
            await supervisor.stop()

    run(main)


def test_old_ones_go_first_where_there_is_none_and_still_nothing_is_cut() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a", replicas=2), gpus=2))
            at.diary.running.update({"a-0.1": 1, "a-1.1": 1})
            change = asyncio.ensure_future(supervisor.apply(config(embedded("a", replicas=2, version="2"), gpus=2)))
            await until(lambda: len(at.diary.wrote("draining")) == 2)
            await settled()
            assert at.diary.wrote("ready") == at.diary.wrote("lost") == []
            at.diary.running["a-1.1"] = 0
            await settled()
            assert at.backend.started == ["a-0.1", "a-1.1"]
            at.diary.running["a-0.1"] = 0
            await change
            assert sorted(at.diary.wrote("ready")) == ["a-0.2", "a-1.2"]
            await supervisor.stop()

    run(main)


def test_room_that_another_model_leaves_is_used() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a"), embedded("b"), gpus=2))
            at.diary.running["b-0.1"] = 1
            change = asyncio.ensure_future(supervisor.apply(config(embedded("a"), embedded("c"), gpus=2)))
            await until(lambda: at.diary.wrote("draining") == ["b-0.1"])
            await settled()
            assert at.diary.wrote("ready") == []
            at.diary.running["b-0.1"] = 0
            await change
            assert at.diary.wrote("ready") == ["c-0.1"]
            await supervisor.stop()

    run(main)


def test_while_the_new_one_cannot_start_the_old_one_serves_and_a_way_back_is_open() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a")))
            at.backend.broken["a"] = "The weights are bad."
            change = asyncio.ensure_future(supervisor.apply(config(embedded("a", version="2"))))
            await until(lambda: State.FAILED in states(supervisor).values())
            assert states(supervisor)["a-0.1"] is State.READY
            assert "The weights are bad." in [status.last_error for status in supervisor.status()]
            await supervisor.apply(config(embedded("a")))
            await change
            assert states(supervisor) == {"a-0.1": State.READY}
            assert at.diary.entries == []
            await supervisor.stop()

    run(main)


def test_a_way_back_does_not_stop_a_drain_that_has_begun() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a")))
            at.diary.running["a-0.1"] = 1
            change = asyncio.ensure_future(supervisor.apply(config()))
            await until(lambda: at.diary.wrote("draining"))
            back = asyncio.ensure_future(supervisor.apply(config(embedded("a"))))
            await until(lambda: at.diary.wrote("ready") == ["a-0.2"])
            await change
            at.diary.running["a-0.1"] = 0
            await back
            assert states(supervisor) == {"a-0.2": State.READY}
            await supervisor.stop()

    run(main)


def test_a_change_that_cannot_be_is_refused_and_nothing_happens() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a")))
            at.backend.unfit["b"] = "No such file."
            with pytest.raises(StartError, match="No such file"):
                await supervisor.apply(config(embedded("b")))
            await settled()
            assert at.diary.entries == []
            await supervisor.stop()

    run(main)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_what_runs_until_its_deadline_or_until_it_is_hurried() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a", replicas=2)))
            at.diary.running["a-0.1"] = 1
            stopping = asyncio.ensure_future(supervisor.stop(10**9 * NS_PER_S))
            await until(lambda: at.diary.wrote("lost") == ["a-1.1"])
            await settled()
            assert not stopping.done()
            await supervisor.stop()
            await stopping
            assert at.diary.wrote("lost") == ["a-1.1", "a-0.1"]

    run(main)


def test_a_change_after_the_end_changes_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = await started(at, config(embedded("a")))
            await supervisor.stop()
            await supervisor.apply(config(embedded("b")))
            assert supervisor.status() == []

    run(main)


# -- for real ----------------------------------------------------------------------------------------------------------


def test_real_engines_are_started_again_after_kill_9_and_none_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        model = msgspec.structs.replace(running.model(slots=1, context_tokens=256), replicas=2)
        supervisor, diary = _real(tmp_path, model)
        await supervisor.first_start()
        await until(lambda: len(diary.wrote("ready")) == 2)
        pids = {status.id: status.pid for status in supervisor.status()}
        assert sorted(pids.values(), key=str) == sorted(children(os.getpid()), key=str)

        victim = pids["smollm2-1.1"]
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        await until(lambda: "smollm2-1.2" in diary.wrote("ready"))
        assert diary.wrote("lost") == ["smollm2-1.1"]
        (status,) = [status for status in supervisor.status() if status.id == "smollm2-1.2"]
        assert status.restarts == 1
        assert "was ended by SIGKILL" in str(status.last_error)

        await supervisor.stop()
        assert children(os.getpid()) == []
        assert not any(pid is not None and alive(pid) for pid in pids.values())
        assert {file.name for file in (tmp_path / "engines").iterdir()} == {"smollm2-0.log", "smollm2-1.log"}

    run(main)


def test_a_real_engine_that_crashes_at_its_start_is_one_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "broken.gguf"
        file.write_bytes(b"GGUF but no model")
        supervisor, _ = _real(tmp_path, running.model(file=str(file)))
        with pytest.raises(StartError, match=r"Model smollm2 cannot be served\. .* could not start: ") as caught:
            await supervisor.first_start()
        assert "\n" not in str(caught.value)
        assert children(os.getpid()) == []

    run(main)


def _real(folder: Path, model: Model) -> tuple[Supervisor, Diary]:
    diary = Diary()
    wanted = msgspec.structs.replace(config(model), state=folder)
    time = Time()
    return Supervisor(
        wanted,
        time,
        ready=diary.ready,
        draining=diary.draining,
        lost=diary.lost,
        in_flight=diary.in_flight,
    ), diary
