"""The life of one replica, told as what happens to its engine and what is said of it."""

import asyncio

import msgspec

from commonpool.control.seat import State
from commonpool.core.model import NS_PER_S, Replica
from tests.backends.scripted import PATHS
from tests.control.fakes import TIMING, checked, embedded, settled, stage, until
from tests.engines.running import run

CHAT = f"POST {PATHS[0]}"


def test_it_is_announced_once_it_is_healthy_and_has_answered_a_request() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            assert at.engine.asked[:2] == ["GET /health", CHAT]
            assert at.diary.entries == [("ready", "m-0.1")]
            status = seat.status()
            assert (status.id, status.model, status.restarts, status.pid) == ("m-0.1", "m", 0, 4242)
            assert status.address == f"http://127.0.0.1:{at.engine.port}"
            assert status.last_error is None
            await seat.close(0)

    run(main)


def test_an_engine_that_listens_and_cannot_answer_is_never_announced() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.answers = dict.fromkeys(PATHS, 500)
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.FAILED)
            assert at.diary.wrote("ready") == []
            assert at.diary.wrote("stopped")[:3] == ["m-0.1", "m-0.2", "m-0.3"]
            assert "answered a first request with 500" in str(seat.last_error)
            await seat.close(0)

    run(main)


def test_three_failed_starts_are_a_failure_that_is_tried_again_now_and_then() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.faults = [f"fault {number}" for number in range(1, 6)]
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.FAILED)
            assert "fault" in str(seat.last_error)
            await until(lambda: seat.state is State.READY)
            assert at.time.pauses()[:5] == [0.5, 1.0, 30.0, 30.0, 30.0]
            assert at.diary.wrote("ready") == ["m-0.6"]
            assert seat.status().restarts == 5
            await seat.close(0)

    run(main)


def test_one_that_ends_is_lost_and_its_successor_has_an_id_of_its_own() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("ready") == ["m-0.1"])
            at.backend.handles["m-0.1"].end.set_result("it was ended by SIGKILL")
            await until(lambda: len(at.diary.entries) == 4)
            assert at.diary.entries == [
                ("ready", "m-0.1"), ("lost", "m-0.1"), ("stopped", "m-0.1"), ("ready", "m-0.2"),
            ]  # fmt: skip
            assert (seat.last_error, seat.status().restarts) == ("it was ended by SIGKILL", 1)
            await seat.close(0)

    run(main)


def test_pauses_double_up_to_a_limit_while_it_keeps_ending() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("ready"))
            at.backend.faults = ["again"] * 8
            at.backend.handles["m-0.1"].end.set_result("gone")
            await until(lambda: len(at.time.pauses()) >= 9)
            assert at.time.pauses()[:9] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
            assert seat.state is not State.FAILED  # it has been up before
            await seat.close(0)

    run(main)


def test_after_a_healthy_while_the_next_pause_is_short_again() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.faults = ["one", "two"]
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("ready") == ["m-0.3"])
            begun = at.time.now_ns
            await until(lambda: at.time.now_ns - begun > TIMING.healthy_ns)
            at.backend.handles["m-0.3"].end.set_result("gone")
            await until(lambda: at.diary.wrote("ready") == ["m-0.3", "m-0.4"])
            assert at.time.pauses() == [0.5, 1.0, 0.5]
            await seat.close(0)

    run(main)


def test_three_bad_checks_in_a_row_are_a_loss() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.engine.health = 500
            before = at.engine.asked.count("GET /health")
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert at.engine.asked.count("GET /health") - before >= 3
            assert "/health answered 500" in str(seat.last_error)
            at.engine.health = 200
            await until(lambda: seat.state is State.READY)
            assert at.diary.wrote("ready")[0] == "m-0.1"
            assert len(at.diary.wrote("ready")) == 2
            await seat.close(0)

    run(main)


def test_a_health_check_that_hangs_is_a_bad_one() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.engine.health = 0
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert "did not answer within 0.25 s" in str(seat.last_error)
            await seat.close(0)

    run(main)


def test_one_bad_check_among_good_ones_is_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            for _ in range(4):
                at.engine.health = -1
                await checked(at.engine, 1)
                at.engine.health = 200
                await checked(at.engine, 2)
            assert at.diary.entries == [("ready", "m-0.1")]
            await seat.close(0)

    run(main)


def test_one_too_busy_to_say_is_unknown_for_a_while_and_keeps_its_work() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.engine.health = 503
            await until(lambda: seat.state is State.UNKNOWN)
            at.engine.health = 200
            await until(lambda: seat.state is State.READY)
            assert at.diary.entries == [("ready", "m-0.1")]
            at.engine.health = 429
            seen = len(at.engine.asked)
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert len(at.engine.asked) - seen >= TIMING.busy_max
            await seat.close(0)

    run(main)


def test_a_drain_waits_for_what_runs() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.diary.running["m-0.1"] = 2
            closing = asyncio.ensure_future(seat.close(None))
            await until(lambda: at.diary.wrote("draining"))
            await settled()
            assert (seat.state, seat.closing, at.backend.handles["m-0.1"].stops) == (State.DRAINING, True, 0)
            at.diary.running["m-0.1"] = 0
            await closing
            assert at.diary.entries == [
                ("ready", "m-0.1"), ("draining", "m-0.1"), ("lost", "m-0.1"), ("stopped", "m-0.1"),
            ]  # fmt: skip
            assert seat.state is State.GONE

    run(main)


def test_a_drain_ends_at_its_deadline_which_a_second_call_may_bring_forward() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.diary.running["m-0.1"] = 1
            begun = at.time.now_ns
            await seat.close(10 * NS_PER_S)
            assert at.time.now_ns - begun >= 10 * NS_PER_S

            other = at.seat()
            other.begin()
            await until(lambda: other.state is State.READY)
            first = asyncio.ensure_future(other.close(None))
            await until(lambda: other.state is State.DRAINING)
            await asyncio.gather(first, other.close(0), other.close(3600 * NS_PER_S))
            assert at.diary.wrote("lost") == ["m-0.1", "m-0.1"]

    run(main)


def test_one_that_ends_while_it_drains_is_waited_for_no_longer() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await until(lambda: seat.state is State.READY)
            at.diary.running["m-0.1"] = 1
            closing = asyncio.ensure_future(seat.close(None))
            await until(lambda: at.diary.wrote("draining"))
            at.backend.handles["m-0.1"].end.set_result("gone")
            await closing
            assert at.diary.wrote("lost") == ["m-0.1"]

    run(main)


def test_closing_one_that_is_just_starting_leaves_nothing_and_says_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.health = 0  # it hangs between its start and its first answer
            seat = at.seat()
            seat.begin()
            await until(lambda: at.engine.asked)
            await seat.close(None)
            assert at.diary.entries == [("stopped", "m-0.1")]

    run(main)


def test_a_fault_of_ours_does_not_end_the_supervision() -> None:
    async def main() -> None:
        async with stage() as at:
            at.diary.fault = RuntimeError("a fault")
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("ready") == ["m-0.2"])
            assert seat.last_error == "The supervision of replica m-0.1 failed; the log says how."
            await seat.close(0)

    run(main)


def test_the_replica_has_the_shape_of_its_model() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat(msgspec.structs.replace(embedded("m"), milli_gpu=250, slots=3, kv_tokens=77))
            seat.begin()
            await until(lambda: at.diary.replicas)
            assert at.diary.replicas == [Replica("m-0.1", "m", 250, 3, 77)]
            await seat.close(0)

    run(main)
