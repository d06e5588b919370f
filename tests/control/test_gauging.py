"""What an engine says of itself, beside its health checks: when it is read, how long it holds, and whose work it is."""

from commonpool.control.gauging import Gauged, Gauging
from commonpool.control.seat import Seat, State
from commonpool.core.model import NS_PER_S
from commonpool.engines.gauges import Gauges
from commonpool.engines.registry import OPENAI, SGLANG, VLLM
from tests.control.fakes import TIMING, Stage, checked, config, ready, stage, start, state, until
from tests.control.fakes import embedded as model
from tests.engines.expositions import llamacpp, sglang, vllm
from tests.engines.running import run

PAGE = "GET /metrics"


def said(seat: Seat) -> Gauges | None:
    engine = seat.status().engine
    return None if engine is None else engine.gauges


def foreign(seat: Seat) -> int:
    engine = seat.status().engine
    return 0 if engine is None else engine.foreign


async def read_again(at: Stage, times: int = 1) -> None:
    """Wait until what the engine says now has been read so many times."""
    seen = at.engine.asked.count(PAGE)
    await until(lambda: at.engine.asked.count(PAGE) > seen + times)  # the last but one was answered in between


def test_what_an_engine_says_is_read_at_its_first_check_and_then_at_every_fifth() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.metrics = llamacpp(1, 2, 3)
            gauging = Gauging(clock=at.time, sent=lambda _: 0, every=5, fresh_ns=NS_PER_S, timeout_ns=NS_PER_S)
            assert gauging.last() is None
            for check in range(11):
                at.time.now_ns += 1
                gauging.checked(at.engine.target())
                if check % 5 == 0:
                    await until(lambda: gauging.last() == Gauged(at.time.now_ns, Gauges(1, 2, None, 3)))
            assert at.engine.asked == [PAGE] * 3

    run(main)


def test_nothing_is_known_of_one_that_never_said_anything() -> None:
    async def main() -> None:
        async with stage() as at, ready(at) as seat:
            await checked(at.engine, 20)
            assert PAGE in at.engine.asked
            assert seat.status().engine is None

    run(main)


def test_one_without_such_a_page_is_not_asked() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.adapter = OPENAI
            async with ready(at) as seat:
                await checked(at.engine, 20)
                assert PAGE not in at.engine.asked
                assert seat.status().engine is None

    run(main)


def test_what_was_said_too_long_ago_says_nothing_of_now() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.metrics = llamacpp(1)
            async with ready(at) as seat:
                await until(lambda: said(seat) is not None)
                at.engine.metrics = None
                await until(lambda: said(seat) is None)
                engine = seat.status().engine
                assert engine is not None
                assert at.time.now_ns - engine.at_ns > TIMING.gauges_fresh_ns
                at.engine.metrics = llamacpp(4)
                await until(lambda: said(seat) == Gauges(4, 0, None, 0))

    run(main)


def test_a_page_that_never_comes_holds_up_no_check_and_loses_no_replica() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.metrics = ""
            async with ready(at) as seat:
                await checked(at.engine, 60)
                assert at.engine.asked.count("GET /health") > at.engine.asked.count(PAGE) > 0
                assert state(seat) is State.READY
                assert at.diary.wrote("lost") == []

    run(main)


def test_more_in_an_engine_than_was_sent_is_somebody_elses_while_it_works() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.adapter = VLLM
            at.sent["m-0.1"] = 2
            at.engine.metrics = vllm(5, 2, tokens=10)
            async with ready(at) as seat:
                await read_again(at, 2)
                assert (said(seat), foreign(seat)) == (Gauges(5, 2, 0, 10), 0)  # it does nothing: these may have left
                at.engine.metrics = vllm(5, 2, tokens=20)
                await until(lambda: foreign(seat) == 5)
                at.engine.metrics = vllm(2, 1, tokens=30)
                await until(lambda: said(seat) == Gauges(2, 1, 0, 30))
                assert foreign(seat) == 0  # one may be a moment's difference

    run(main)


def test_a_fourth_more_than_was_sent_is_a_moments_difference() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.adapter = SGLANG  # which is believed at once: it shows what ended soon enough
            at.sent["m-0.1"] = 40
            at.engine.metrics = sglang(49)
            async with ready(at) as seat:
                await until(lambda: said(seat) == Gauges(49, 0, 0))
                assert foreign(seat) == 0
                at.engine.metrics = sglang(50)
                await until(lambda: foreign(seat) == 10)

    run(main)


def test_what_several_replicas_sent_to_one_engine_is_all_ours() -> None:
    async def main() -> None:
        async with stage() as at:
            at.engine.adapter = SGLANG
            at.sent.update({"m-0.1": 3, "n-0.1": 4})
            at.engine.metrics = sglang(7)
            supervisor = at.supervisor(config(model("m"), model("n")))
            for replica_id in ("m-0.1", "n-0.1"):
                supervisor.start(start(replica_id))

            def engines() -> list[Gauged | None]:
                return [status.engine for status in supervisor.status()]

            await until(lambda: [each.gauges if each else None for each in engines()] == [Gauges(7, 0, 0)] * 2)
            assert [each.foreign if each else None for each in engines()] == [0, 0]
            at.sent["n-0.1"] = 0
            await until(lambda: [each.foreign if each else None for each in engines()] == [4, 4])
            await supervisor.close()

    run(main)
