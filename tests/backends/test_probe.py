"""Health checks and first requests, against an engine that answers as it is told to."""

import msgspec
import pytest

from commonpool.backends.base import BackendError
from commonpool.backends.probe import Health, ask, health, prove
from commonpool.core.model import NS_PER_S
from tests.backends.scripted import PATHS, ScriptedEngine, scripted
from tests.engines.running import run

CHAT, COMPLETIONS, EMBEDDINGS = PATHS
LONG_NS = 60 * NS_PER_S
SHORT_NS = NS_PER_S // 20


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Health.GOOD),
        (503, Health.UNKNOWN),
        (429, Health.UNKNOWN),
        (500, Health.BAD),
        (401, Health.BAD),
        (-1, Health.BAD),
    ],
)
def test_health_is_good_bad_or_unknown(status: int, expected: Health) -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.health = status
            found, reason = await health(engine.target(), LONG_NS)
            assert found is expected
            assert bool(reason) is (found is not Health.GOOD)

    run(main)


def test_silence_is_bad_health() -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.health = 0
            found, reason = await health(engine.target(), SHORT_NS)
            assert (found, reason.partition("/health")[2]) == (Health.BAD, " did not answer within 0.05 s.")

    run(main)


def test_nobody_there_is_bad_health() -> None:
    async def main() -> None:
        async with scripted() as engine:
            target = engine.target()
        found, reason = await health(target, LONG_NS)
        assert found is Health.BAD
        assert f"127.0.0.1:{target.port} cannot be reached: " in reason

    run(main)


def test_paths_credential_and_base_path_are_those_of_the_target() -> None:
    async def main() -> None:
        async with scripted() as engine:
            await health(engine.target(openai=True, base_path="/team"), LONG_NS)
            await prove(engine.target(base_path="/team"), LONG_NS)
            assert engine.asked == ["GET /team/v1/models", f"POST /team{CHAT}"]
            assert all("\r\nAuthorization: Bearer k\r\n" in head for head in engine.heads)

    run(main)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ({}, [CHAT]),
        ({CHAT: 404}, [CHAT, COMPLETIONS]),
        ({CHAT: 400, COMPLETIONS: 501}, [CHAT, COMPLETIONS, EMBEDDINGS]),
    ],
)
def test_a_first_request_goes_to_what_the_engine_serves(answers: dict[str, int], asked: list[str]) -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.answers.update(answers)
            await prove(engine.target(), LONG_NS)
            assert engine.asked == [f"POST {path}" for path in asked]

    run(main)


def test_a_refused_credential_is_said_at_once() -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.answers[CHAT] = 401
            with pytest.raises(BackendError, match=r"with 401 \(.*\); check the credential") as caught:
                await prove(engine.target(), LONG_NS)
            assert len(engine.asked) == 1
            assert "Bearer" not in str(caught.value)

    run(main)


def test_an_engine_that_answers_nothing_is_not_proved() -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.answers.update(dict.fromkeys(PATHS, 500))
            with pytest.raises(BackendError, match=rf"{CHAT} answered a first request with 500"):
                await prove(engine.target(), LONG_NS)

    run(main)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "something that is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "without a whole answer"),
        (b"", "without a whole answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 8_000_000, "without a whole answer"),
    ],
    ids=["not http", "short", "nothing", "endless"],
)
def test_an_answer_that_is_none_is_one_sentence(raw: bytes, sentence: str) -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.raw = raw
            with pytest.raises(BackendError, match=sentence):
                await ask(engine.target(), "GET", "/health", b"", LONG_NS)

    run(main)


def test_chunked_answers_are_understood() -> None:
    async def main() -> None:
        async with scripted() as engine:
            engine.raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
            answer = await ask(engine.target(), "GET", "/health", b"", LONG_NS)
            assert (answer.status, answer.body) == (200, b"hello world")

    run(main)


def test_a_host_name_that_is_none_is_one_sentence() -> None:
    async def main() -> None:
        target = msgspec.structs.replace(ScriptedEngine().target(), host="a..b", port=80)
        with pytest.raises(BackendError, match=r"http://a\.\.b:80 cannot be reached"):
            await ask(target, "GET", "/health", b"", LONG_NS)

    run(main)
