"""Asking a replica whether it is well: its health page, and one real request. Rare, and never on a request's way."""

import asyncio
import enum
from typing import Any, Final

import httptools
import msgspec

from commonpool.backends.base import BackendError
from commonpool.core.model import NS_PER_S
from commonpool.engines import reach
from commonpool.engines.base import Target

ANSWER_BYTES_MAX: Final = 1024 * 1024
OK, REFUSED_FROM, REFUSED_TO = 200, 401, 403
BUSY: Final = frozenset({429, 503})
NOT_SERVED: Final = frozenset({400, 404, 405, 422, 500, 501})  # what engines answer on an endpoint they do not have


class Health(enum.Enum):
    """What a health check says. Busy is not an answer to the question: the engine is there, and its health unknown."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer."""

    status: int
    body: bytes


async def health(target: Target, timeout_ns: int) -> tuple[Health, str]:
    """The replica's health now, and the reason in words when it is not good."""
    path = target.adapter.health_path
    try:
        answer = await ask(target, "GET", path, b"", timeout_ns)
    except BackendError as error:
        return Health.BAD, str(error)
    if answer.status == OK:
        return Health.GOOD, ""
    sentence = f"{target.url}{path} answered {_described(answer)}."
    return Health.UNKNOWN if answer.status in BUSY else Health.BAD, sentence


async def prove(target: Target, timeout_ns: int) -> None:
    """Have it answer one request of one token, on the first endpoint that it serves. Raises BackendError."""
    model = target.served_model
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
        ("/v1/completions", {"model": model, "prompt": "hi", "max_tokens": 1}),
        ("/v1/embeddings", {"model": model, "input": "hi"}),
    )
    first: BackendError | None = None
    for path, body in requests:
        answer = await ask(target, "POST", path, msgspec.json.encode(body), timeout_ns)
        if answer.status == OK:
            return
        hint = ""
        if answer.status in (REFUSED_FROM, REFUSED_TO):
            hint = "; check the credential of its engine"
        first = first or BackendError(f"{target.url}{path} answered a first request with {_described(answer)}{hint}.")
        if answer.status not in NOT_SERVED:
            break
    if first is not None:
        raise first


async def ask(target: Target, method: str, path: str, body: bytes, timeout_ns: int) -> Answer:
    """One request on a connection of its own. Raises BackendError where there is no whole answer in time."""
    collected = _Collected()
    parser = httptools.HttpResponseParser(collected)
    try:
        async with asyncio.timeout(timeout_ns / NS_PER_S):
            reader, writer = await _open(target)
            try:
                writer.write(_request(target, method, path, body))
                while not collected.whole:
                    data = await reader.read(65536)
                    collected.size += len(data)
                    if not data or collected.size > ANSWER_BYTES_MAX:
                        break
                    parser.feed_data(data)
            finally:
                writer.transport.abort()  # the answer is here, or not wanted any more
    except TimeoutError:
        raise BackendError(f"{target.url}{path} did not answer within {timeout_ns / NS_PER_S:g} s.") from None
    except httptools.HttpParserError:
        raise BackendError(f"{target.url}{path} answered something that is not HTTP.") from None
    except (OSError, UnicodeError) as error:  # a host name may be none
        reason = getattr(error, "strerror", None) or error
        raise BackendError(f"{target.url} cannot be reached: {reason}.") from None
    if not collected.whole:
        raise BackendError(f"{target.url}{path} closed the connection without a whole answer.")
    return Answer(parser.get_status_code(), bytes(collected.body))


async def _open(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader = asyncio.StreamReader()
    transport, protocol = await reach.connect(lambda: asyncio.StreamReaderProtocol(reader), target)
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


class _Collected:
    """What the parser calls back."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.size = 0
        self.whole = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.whole = True


def _request(target: Target, method: str, path: str, body: bytes) -> bytes:
    host = target.url.partition("://")[2].partition("/")[0]
    lines = [f"{method} {target.base_path}{path} HTTP/1.1".encode(), f"Host: {host}".encode(), b"Accept: */*"]
    if target.authorization is not None:
        lines.append(b"Authorization: " + target.authorization)
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"", body])


def _described(answer: Answer) -> str:
    text = " ".join(answer.body[:200].decode(errors="replace").split())
    return f"{answer.status} ({text})" if text else str(answer.status)
