"""The life of one replica, told as what happens to its engine and what is said of it."""

import asyncio
import gc

from commonpool.control.seat import Gates, State
from commonpool.core.ledger import Phase, Span
from tests.backends.scripted import PATHS
from tests.control.fakes import TIMING, checked, ready, replica, settled, stage, state, until
from tests.engines.running import run

CHAT = f"POST {PATHS[0]}"


# -- start -------------------------------------------------------------------------------------------------------------


def test_it_is_announced_once_it_is_healthy_and_has_answered_a_request() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            assert at.engine.asked[:2] == ["GET /health", CHAT]
            assert at.diary.entries == [("ready", "m-0.1")]
            assert at.diary.engines == [None]
            status = seat.status()
            assert (status.replica, status.pid) == (replica("m-0.1"), 4242)
            assert status.address == f"http://127.0.0.1:{at.engine.port}"

    run(main)


def test_an_engine_that_listens_and_cannot_answer_is_never_announced() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.answers = dict.fromkeys(PATHS, 500)
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.entries == [("stopped", "m-0.1"), ("lost", "m-0.1")]
            assert "answered a first request with 500" in at.diary.reasons["m-0.1"]

    run(main)


def test_an_engine_that_is_not_healthy_is_never_announced() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.health = 503
            at.seat().begin()
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.entries == [("stopped", "m-0.1"), ("lost", "m-0.1")]
            assert "/health answered 503" in at.diary.reasons["m-0.1"]

    run(main)


def test_one_that_cannot_be_started_is_lost_with_the_reason_and_stays_lost() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.broken["m"] = "The weights are bad."
            at.seat().begin()
            await until(lambda: at.diary.wrote("lost"))
            await settled()
            assert at.diary.entries == [("lost", "m-0.1")]
            assert at.diary.reasons == {"m-0.1": "The weights are bad."}
            assert len(at.backend.started) == 1

    run(main)


def test_a_replica_of_an_earlier_run_is_announced_with_its_engine_and_watched() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.left = [(replica("m-0.4"), 0, "older")]
            (found,) = await at.backend.adopt()
            seat = at.seat("m-0.4")
            seat.resume(found.handle, found.engine)
            assert (at.diary.entries, at.diary.engines) == ([("ready", "m-0.4")], ["older"])
            await checked(at.engine, 2)
            at.backend.handles["m-0.4"].end.set_result("It was ended by SIGKILL.")
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.reasons == {"m-0.4": "It was ended by SIGKILL."}

    run(main)


def test_a_gate_is_kept_while_somebody_is_at_it() -> None:
    async def main() -> None:
        gates = Gates(1)

        async def enter(node: str) -> None:
            async with gates.on(node):
                await asyncio.sleep(0.001)

        entering = [asyncio.create_task(enter(node)) for node in ("n1", "n1", "n2")]
        await asyncio.sleep(0)
        assert gates.on("n1").locked()
        assert len(gates) == 2
        await asyncio.gather(*entering)
        del entering
        gc.collect()
        assert len(gates) == 0

    run(main)


# -- watch -------------------------------------------------------------------------------------------------------------


def test_one_that_ends_by_itself_is_lost_once_nothing_is_left_of_it() -> None:
    async def main() -> None:
        async with stage() as at, ready(at):
            at.backend.handles["m-0.1"].end.set_result("It was ended by SIGKILL.")
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.entries == [("ready", "m-0.1"), ("stopped", "m-0.1"), ("lost", "m-0.1")]
            assert at.diary.reasons == {"m-0.1": "It was ended by SIGKILL."}

    run(main)


def test_three_bad_checks_in_a_row_are_a_loss() -> None:
    async def main() -> None:
        async with stage() as at, ready(at):
            at.engine.health = 500
            before = at.engine.asked.count("GET /health")
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert at.engine.asked.count("GET /health") - before == TIMING.bad_max
            assert "/health answered 500" in at.diary.reasons["m-0.1"]

    run(main)


def test_a_health_check_that_hangs_is_a_bad_one() -> None:
    async def main() -> None:
        async with stage() as at, ready(at):
            at.engine.health = 0
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert "did not answer within 0.25 s" in at.diary.reasons["m-0.1"]

    run(main)


def test_one_bad_check_among_good_ones_is_nothing() -> None:
    async def main() -> None:
        async with stage() as at, ready(at):
            for _ in range(4):
                at.engine.health = -1
                await checked(at.engine, 1)
                at.engine.health = 200
                await checked(at.engine, 2)
            assert at.diary.entries == [("ready", "m-0.1")]

    run(main)


def test_one_too_busy_to_say_is_unknown_for_a_while_and_keeps_its_work() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            at.engine.health = 503
            await until(lambda: state(seat) is State.UNKNOWN)
            at.engine.health = 200
            await until(lambda: state(seat) is State.READY)
            assert at.diary.entries == [("ready", "m-0.1")]
            at.engine.health = 429
            seen = len(at.engine.asked)
            await until(lambda: at.diary.wrote("lost") == ["m-0.1"])
            assert len(at.engine.asked) - seen >= TIMING.busy_max

    run(main)


def test_a_fault_of_ours_is_a_loss_and_leaves_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            at.diary.fault = RuntimeError("a fault")
            at.seat().begin()
            await until(lambda: at.diary.wrote("lost"))
            assert at.diary.entries == [("stopped", "m-0.1"), ("lost", "m-0.1")]
            assert at.diary.reasons["m-0.1"] == "The supervision of replica m-0.1 failed; the log says how."

    run(main)


# -- end ---------------------------------------------------------------------------------------------------------------


def test_its_end_is_told_without_a_reason_once_nothing_is_left_of_it() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            await seat.end()
            assert at.diary.entries == [("ready", "m-0.1"), ("stopped", "m-0.1"), ("lost", "m-0.1")]
            assert at.diary.reasons == {"m-0.1": ""}

    run(main)


def test_its_end_is_told_once_however_often_it_is_asked_for() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            await asyncio.gather(*(seat.end() for _ in range(3)))
            await seat.end()
            assert at.diary.wrote("lost") == ["m-0.1"]
            assert at.diary.wrote("stopped") == ["m-0.1"]

    run(main)


def test_ending_one_that_waits_to_start_starts_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            seat = at.seat()
            seat.begin()
            await seat.end()
            assert at.diary.entries == [("lost", "m-0.1")]
            assert (at.backend.started, at.backend.starting) == ([], 0)

    run(main)


def test_ending_one_that_is_just_starting_leaves_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            at.backend.gate.clear()
            seat = at.seat()
            seat.begin()
            await until(lambda: at.backend.starting)
            await seat.end()
            assert (at.diary.entries, at.backend.starting) == ([("lost", "m-0.1")], 0)
            assert at.diary.reasons == {"m-0.1": ""}

    run(main)


def test_ending_one_that_is_being_proved_leaves_nothing() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.health = 0  # it hangs between its start and its first answer
            seat = at.seat()
            seat.begin()
            await until(lambda: at.engine.asked)
            await seat.end()
            assert at.diary.entries == [("stopped", "m-0.1"), ("lost", "m-0.1")]

    run(main)


def test_one_that_ends_by_itself_while_it_is_ended_is_lost_once() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            at.backend.handles["m-0.1"].end.set_result("gone")
            await seat.end()
            assert at.diary.wrote("lost") == ["m-0.1"]

    run(main)


# -- what was there ----------------------------------------------------------------------------------------------------


def test_what_is_on_its_devices_is_noted_from_its_start_until_nothing_is_left_of_it() -> None:
    async def main() -> None:
        async with stage() as at:
            at.time.now_ns = 100
            seat = at.seat()
            seat.begin()
            await until(lambda: at.diary.wrote("ready"))
            began = at.time.now_ns
            at.time.now_ns += 50
            await seat.end()
            (span,) = (note for note in at.notes if isinstance(note, Span))
            assert (span.id, span.phase, span.pool) == ("m-0.1", Phase.HELD, "gpus")
            assert span.milli_gpu == seat.replica.milli_gpu
            assert 100 <= span.start_ns <= began
            assert span.end_ns >= began + 50

    run(main)
