"""The supervisor performs what the core decides: it starts, adopts and ends replicas, and tells what became of them."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from commonpool.config.structs import Config, Model, NodeConfig
from commonpool.control.held import Held
from commonpool.control.replicas import STARTS_AT_ONCE, StartError, Supervisor
from commonpool.control.seat import State
from commonpool.core.effects import StartReplica
from commonpool.core.model import Replica
from tests.backends.processes import alive, children
from tests.control.fakes import Diary, Time, config, embedded, replica, settled, stage, start, until
from tests.engines import running
from tests.engines.running import run


def states(supervisor: Supervisor) -> dict[str, State]:
    return {status.replica.id: status.state for status in supervisor.status()}


def test_what_is_to_be_started_is_started_as_it_is_said_and_told_when_it_is_ready() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("a"), embedded("b")))
            wanted = Replica("a-3.7", "a", 1000, 2, 1024, "n1", ("n1/4",))
            supervisor.start(StartReplica(wanted, 3))
            assert states(supervisor) == {"a-3.7": State.STARTING}
            await until(lambda: at.diary.wrote("ready"))
            assert at.backend.started == [("1", 3, wanted)]
            assert at.diary.replicas == [wanted]
            assert states(supervisor) == {"a-3.7": State.READY}
            await supervisor.close()

    run(main)


def test_at_most_two_start_at_once_on_a_node() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            supervisor = at.supervisor(config(embedded("a")))
            for index in range(6):
                supervisor.start(start(f"a-{index}.1"))
            await until(lambda: at.backend.starting == STARTS_AT_ONCE)
            await settled()
            at.backend.gate.set()
            await until(lambda: len(at.diary.wrote("ready")) == 6)
            assert at.backend.starting_max == STARTS_AT_ONCE
            await supervisor.close()

    run(main)


def test_nodes_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            supervisor = at.supervisor(config(embedded("a")))
            nodes = ("n1", "n2", "n3")
            for index in range(12):
                wanted = msgspec.structs.replace(replica(f"a-{index}.1"), node=nodes[index % 3])
                supervisor.start(StartReplica(wanted, index))
            await until(lambda: at.backend.starting == STARTS_AT_ONCE * 3)
            await settled()
            assert [each.node for _, _, each in at.backend.started] == [*nodes, *nodes]
            at.backend.gate.set()
            await until(lambda: len(at.diary.wrote("ready")) == 12)
            assert at.backend.starting_max == STARTS_AT_ONCE * 3
            await supervisor.close()

    run(main)


def test_what_is_to_end_ends_and_what_was_lost_is_forgotten() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("a")))
            for index in range(3):
                supervisor.start(start(f"a-{index}.1"))
            await until(lambda: len(at.diary.wrote("ready")) == 3)
            supervisor.stop("a-1.1")
            supervisor.stop("a-1.1")
            supervisor.stop("nobody")
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.reasons == {"a-1.1": ""}
            at.backend.handles["a-2.1"].end.set_result("It was ended by SIGKILL.")
            await until(lambda: len(at.diary.wrote("lost")) == 2)
            assert at.diary.reasons["a-2.1"] == "It was ended by SIGKILL."
            assert states(supervisor) == {"a-0.1": State.READY}
            await settled()
            assert len(at.backend.started) == 3  # to start another is the core's to say
            await supervisor.close()

    run(main)


def test_what_waits_for_its_turn_to_start_may_be_ended() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            supervisor = at.supervisor(config(embedded("a")))
            for index in range(3):
                supervisor.start(start(f"a-{index}.1"))
            await until(lambda: at.backend.starting == STARTS_AT_ONCE)
            supervisor.stop("a-2.1")
            supervisor.stop("a-0.1")
            await until(lambda: len(at.diary.wrote("lost")) == 2)
            assert [each.id for _, _, each in at.backend.started] == ["a-0.1", "a-1.1"]
            at.backend.gate.set()
            await until(lambda: at.diary.wrote("ready") == ["a-1.1"])
            await supervisor.close()

    run(main)


def test_a_model_that_is_not_configured_is_lost_at_once() -> None:
    async def main() -> None:
        async with stage() as at:
            at.supervisor(config()).start(start("a-0.1"))
            assert at.diary.reasons == {"a-0.1": "Model a is not configured any more."}

    run(main)


def test_what_starts_after_a_change_is_as_the_change_says_and_what_runs_is_not_touched() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("a")))
            supervisor.start(start("a-0.1"))
            await until(lambda: at.diary.wrote("ready") == ["a-0.1"])
            supervisor.configure(config(embedded("a", version="2")))
            supervisor.start(start("a-0.2"))
            await until(lambda: at.diary.wrote("ready") == ["a-0.1", "a-0.2"])
            assert [version for version, _, _ in at.backend.started] == ["1", "2"]
            assert states(supervisor) == dict.fromkeys(["a-0.1", "a-0.2"], State.READY)
            await supervisor.close()

    run(main)


def test_replicas_are_shown_in_the_order_of_models_then_ids() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("b"), embedded("a")))
            for name in ("a-1.1", "b-0.1", "a-0.1"):
                supervisor.start(start(name))
            assert list(states(supervisor)) == ["b-0.1", "a-0.1", "a-1.1"]
            supervisor.configure(config(embedded("a")))
            assert list(states(supervisor)) == ["a-0.1", "a-1.1", "b-0.1"]
            await supervisor.close()

    run(main)


def test_what_can_be_known_beforehand_is_said_in_one_sentence_before_anything_runs() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.unfit["b"] = "The file of model b does not exist."
            models = config(embedded("a"), embedded("b"))
            with pytest.raises(StartError, match=r"^The file of model b does not exist\.$"):
                at.supervisor(models).check(models)
            assert at.backend.started == []

    run(main)


# -- an earlier run ----------------------------------------------------------------------------------------------------


def test_replicas_of_an_earlier_run_are_taken_over_once_and_those_of_other_models_ended() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.left = [
                (replica("a-0.4", ("n1/0",)), 0, "one"),
                (replica("gone-0.1"), 0, "one"),
                (replica("a-1.2"), 1, "two"),
            ]
            supervisor = at.supervisor(config(embedded("a")))
            await supervisor.adopt()
            assert at.diary.entries == [("ready", "a-0.4"), ("stopped", "gone-0.1"), ("ready", "a-1.2")]
            assert at.diary.engines == ["one", "two"]
            assert states(supervisor) == dict.fromkeys(["a-0.4", "a-1.2"], State.READY)
            assert at.backend.started == []
            supervisor.stop("a-0.4")
            await until(lambda: at.diary.wrote("lost") == ["a-0.4"])
            await supervisor.close()

    run(main)


# -- apart from others -------------------------------------------------------------------------------------------------


def apart(*models: Model) -> Config:
    """A pool that demands a network of its own for each node; n1 has one."""
    base = config(*models)
    pool = msgspec.structs.replace(base.policy.pools["gpus"], isolation="network")
    policy = msgspec.structs.replace(base.policy, pools={"gpus": pool})
    node = NodeConfig("n1", "gpus", isolation="network", network="10.3.1.0/24")
    return msgspec.structs.replace(base, policy=policy, nodes={"n1": node})


def test_an_engine_outside_of_its_nodes_network_is_not_used() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(apart(embedded("a")))
            at.backend.host = "10.3.2.7"
            supervisor.start(StartReplica(replica("a-0.1", ("n1/0",)), 0))
            await until(lambda: at.diary.wrote("lost"))
            assert "is plain HTTP outside the network of its node (10.3.1.0/24)" in at.diary.reasons["a-0.1"]
            assert at.diary.entries == [("stopped", "a-0.1"), ("lost", "a-0.1")]
            assert at.engine.asked == []  # nothing was sent there
            # One of an earlier run is not taken over either.
            at.backend.left = [(replica("a-0.2", ("n1/0",)), 0, "one")]
            await supervisor.adopt()
            assert at.diary.entries[2:] == [("stopped", "a-0.2")]
            # On loopback nobody else reaches it, and where less is demanded anybody may.
            at.backend.host = ""
            supervisor.start(StartReplica(replica("a-0.3", ("n1/0",)), 0))
            await until(lambda: at.diary.wrote("ready") == ["a-0.3"])
            await supervisor.close()

    run(main)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_at_the_end_everything_ends_and_nothing_starts_any_more() -> None:
    async def main() -> None:
        async with stage() as at:
            supervisor = at.supervisor(config(embedded("a")))
            supervisor.start(start("a-0.1"))
            await until(lambda: at.diary.wrote("ready"))
            at.backend.gate.clear()
            supervisor.start(start("a-1.1"))
            await until(lambda: at.backend.starting)
            await supervisor.close()
            assert (supervisor.status(), at.backend.starting) == ([], 0)
            assert sorted(at.diary.wrote("lost")) == ["a-0.1", "a-1.1"]
            supervisor.start(start("a-0.2"))  # the core makes up for what it lost
            supervisor.stop("a-0.2")
            await settled()
            assert at.diary.reasons["a-0.2"] == "The product stops."
            assert len(at.backend.started) == 2
            await supervisor.close()

    run(main)


# -- for real ----------------------------------------------------------------------------------------------------------


def test_real_engines_are_told_lost_after_kill_9_and_none_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        before = children(os.getpid())  # of the tests themselves, as a database is
        supervisor, diary = _real(tmp_path, running.model(slots=1, context_tokens=256))
        for index in range(2):
            supervisor.start(StartReplica(running.replica(f"smollm2-{index}.1"), index))
        await until(lambda: len(diary.wrote("ready")) == 2)
        pids = {status.replica.id: status.pid for status in supervisor.status()}
        assert set(pids.values()) == set(children(os.getpid())) - set(before)

        victim = pids["smollm2-1.1"]
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        await until(lambda: diary.wrote("lost") == ["smollm2-1.1"])
        assert "was ended by SIGKILL" in diary.reasons["smollm2-1.1"]

        await supervisor.close()
        assert children(os.getpid()) == before
        assert not any(pid is not None and alive(pid) for pid in pids.values())

    run(main)


def test_a_real_engine_that_crashes_at_its_start_is_one_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        before = children(os.getpid())
        file = tmp_path / "broken.gguf"
        file.write_bytes(b"GGUF but no model")
        supervisor, diary = _real(tmp_path, running.model(file=str(file)))
        supervisor.start(StartReplica(running.replica(), 0))
        await until(lambda: diary.wrote("lost"))
        (reason,) = diary.reasons.values()
        assert "could not start: " in reason
        assert "\n" not in reason
        assert children(os.getpid()) == before
        await supervisor.close()

    run(main)


def _real(folder: Path, model: Model) -> tuple[Supervisor, Diary]:
    diary, time = Diary(), Time()
    held = Held(lambda _: None, time, lambda: 0)
    served = msgspec.structs.replace(config(model), state=folder)
    return Supervisor(served, time, diary.told(), held, in_flight=lambda _: 0), diary
