"""Heads that are malformed, ambiguous or oversized: refused in one answer and a clean close, or served as they must be.

Each is sent whole and byte by byte, with a request smuggled behind it that must never be served as one.
"""

import asyncio
from pathlib import Path

import pytest

from tests.faults.peer import Peer
from tests.faults.rig import Rig, asking, assert_answers, body, pieces, rig
from tests.gateway.fakes import get, run

HIDDEN = b"mark-999999-"
BODY = body(HIDDEN)
SMUGGLED = asking(HIDDEN)
IDENTITY = b"host: gateway\r\nauthorization: Bearer cp_test\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)
BYTEWISE_MAX = 1500


def chat(lines: bytes = b"", *, start: bytes = POST, identity: bytes = IDENTITY, length: bytes = LENGTH) -> bytes:
    """A chat request whose head has further lines."""
    return start + identity + lines + length + b"\r\n" + BODY


def empty(lines: bytes, start: bytes = POST) -> bytes:
    """A request whose body is the last chunk alone, to whom the head's lines say so."""
    return start + IDENTITY + lines + b"\r\n0\r\n\r\n"


def coded(value: bytes) -> bytes:
    return empty(b"transfer-encoding: %b\r\n" % value)


def long(value: bytes) -> bytes:
    return chat(length=b"content-length: %b\r\n" % value)


# What is sent, the status of the one answer, and its code.
REFUSED: dict[str, tuple[bytes, int, str]] = {
    # How long is the body? Whoever answers differently from the next server smuggles.
    "length and chunked": (empty(LENGTH + b"transfer-encoding: chunked\r\n"), 400, "malformed_request"),
    "chunked and length": (empty(b"transfer-encoding: chunked\r\n" + LENGTH), 400, "malformed_request"),
    "length and identity": (chat(b"transfer-encoding: identity\r\n"), 400, "malformed_request"),
    "two equal lengths": (chat(LENGTH), 400, "malformed_request"),
    "two lengths": (chat(b"content-length: 5\r\n"), 400, "malformed_request"),
    "list of lengths": (long(b"5, 5"), 400, "malformed_request"),
    "list of one length": (long(b"5,"), 400, "malformed_request"),
    "negative length": (long(b"-5"), 400, "malformed_request"),
    "length with a plus": (long(b"+5"), 400, "malformed_request"),
    "hexadecimal length": (long(b"0x5"), 400, "malformed_request"),
    "length with a blank": (long(b"5 5"), 400, "malformed_request"),
    "length with an underscore": (long(b"1_0"), 400, "malformed_request"),
    "fractional length": (long(b"5.0"), 400, "malformed_request"),
    "length in other digits": (long("\u0665".encode()), 400, "malformed_request"),
    "length over 64 bits": (long(b"18446744073709551621"), 400, "malformed_request"),
    "length of 64 bits": (long(b"18446744073709551615"), 413, "body_too_large"),
    "empty length": (long(b""), 400, "malformed_request"),
    "blank before the length's colon": (chat(length=b"content-length : 5\r\n"), 400, "malformed_request"),
    "chunked twice": (coded(b"chunked, chunked"), 400, "malformed_request"),
    "chunked on two lines": (empty(b"transfer-encoding: chunked\r\n" * 2), 400, "malformed_request"),
    "xchunked": (coded(b"xchunked"), 400, "malformed_request"),
    "gzip, chunked": (coded(b"gzip, chunked"), 501, "transfer_encoding"),
    "chunked, gzip": (coded(b"chunked, gzip"), 400, "malformed_request"),
    "identity": (coded(b"identity"), 400, "malformed_request"),
    "empty coding": (coded(b""), 400, "malformed_request"),
    "chunked in quotes": (coded(b'"chunked"'), 400, "malformed_request"),
    "chunked with a parameter": (coded(b"chunked;q=1"), 400, "malformed_request"),
    "chunked with a comma": (coded(b"chunked,"), 400, "malformed_request"),
    "comma, chunked": (coded(b",chunked"), 501, "transfer_encoding"),
    "vertical tab, chunked": (coded(b"\x0bchunked"), 400, "malformed_request"),
    "chunked, NUL": (coded(b"chunked\0"), 400, "malformed_request"),
    "blank before the coding's colon": (empty(b"transfer-encoding : chunked\r\n"), 400, "malformed_request"),
    "blank before the coding's name": (empty(b" transfer-encoding: chunked\r\n"), 400, "malformed_request"),
    "coding on a folded line": (empty(b"transfer-encoding:\r\n chunked\r\n"), 400, "malformed_request"),
    "coding behind a bare LF": (empty(b"x: y\ntransfer-encoding: chunked\r\n"), 400, "malformed_request"),
    "coding behind a bare CR": (empty(b"x: y\rtransfer-encoding: chunked\r\n"), 400, "malformed_request"),
    "chunked in HTTP/1.0": (
        empty(b"transfer-encoding: chunked\r\n", POST.replace(b"1.1", b"1.0")), 501, "transfer_encoding"),
    "compressed body": (chat(b"content-encoding: gzip\r\n"), 415, "content_encoding"),
    # Lines that are none.
    "folded line": (chat(b"x: a\r\n b\r\n"), 400, "malformed_request"),
    "NUL in a value": (chat(b"x: a\0b\r\n"), 400, "malformed_request"),
    "CR in a value": (chat(b"x: a\rb\r\n"), 400, "malformed_request"),
    "LF in a value": (chat(b"x: a\nb: c\r\n"), 400, "malformed_request"),
    "DEL in a value": (chat(b"x: \x7f\r\n"), 400, "malformed_request"),
    "empty name": (chat(b": x\r\n"), 400, "malformed_request"),
    "parentheses in a name": (chat(b"x(y): z\r\n"), 400, "malformed_request"),
    "name not in ASCII": (chat("é: x\r\n".encode()), 400, "malformed_request"),
    "line without a colon": (chat(b"hello\r\n"), 400, "malformed_request"),
    "bare LF everywhere": (chat().replace(b"\r\n", b"\n"), 400, "malformed_request"),
    "bare LF at the head's end": (POST + IDENTITY + LENGTH + b"\n" + BODY, 400, "malformed_request"),
    "bare LF behind the request line": (chat(start=POST.replace(b"\r", b"")), 400, "malformed_request"),
    "bare CR everywhere": (chat().replace(b"\r\n", b"\r"), 400, "malformed_request"),
    # Whose request is it?
    "no Host": (chat(identity=IDENTITY.replace(b"host: gateway\r\n", b"")), 400, "malformed_request"),
    "two Hosts": (chat(b"host: gateway\r\n"), 400, "malformed_request"),
    "blank in the Host": (chat(identity=IDENTITY.replace(b"gateway", b"gate way")), 400, "malformed_request"),
    "path in the Host": (chat(identity=IDENTITY.replace(b"gateway", b"a/b@c")), 400, "malformed_request"),
    "two credentials": (chat(b"authorization: Bearer other\r\n"), 400, "malformed_request"),
    # What is asked for, and in which protocol?
    "lower-case method": (chat(start=POST.lower()), 501, "method"),
    "unknown method": (chat(start=POST.replace(b"POST", b"BREW")), 501, "method"),
    "endless method": (b"X" * 100_000, 501, "method"),
    "no version": (b"GET /v1/models\r\n\r\n", 505, "http_version"),
    "HTTP/1.2": (chat(start=POST.replace(b"1.1", b"1.2")), 505, "http_version"),
    "HTTP/2.0": (chat(start=POST.replace(b"1.1", b"2.0")), 505, "http_version"),
    "HTTP/11.1": (chat(start=POST.replace(b"1.1", b"11.1")), 400, "malformed_request"),
    "lower-case version": (chat(start=POST.replace(b"HTTP", b"http")), 400, "malformed_request"),
    "blank behind the version": (chat(start=POST.replace(b"\r", b" \r")), 400, "malformed_request"),
    "blank line of blanks": (chat(start=POST + b" \r\n"), 400, "malformed_request"),
    "tab before the target": (chat(start=POST.replace(b" /", b"\t/")), 501, "method"),
    "NUL in the target": (chat(start=POST.replace(b"/v1", b"/\0v1")), 400, "malformed_request"),
    "target not in ASCII": (chat(start=POST.replace(b"/v1", b"/\xffv1")), 400, "malformed_request"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version"),
    "TLS hello": (bytes.fromhex("16030100c8010000c4030300"), 400, "malformed_request"),
    "expectation unknown": (chat(b"expect: 200-ok\r\n"), 417, "expectation_failed"),
    "expectation for nothing": (
        chat(b"expect: 100-continue\r\n", start=POST.replace(b"chat", b"chit")), 404, "path_not_found"),
    "expectation without a key": (
        POST + b"host: gateway\r\nexpect: 100-continue\r\n" + LENGTH + b"\r\n" + BODY, 401, "invalid_api_key"),
    # How much of it?
    "target of 9 KB": (chat(start=POST.replace(b"ions ", b"ions?" + b"x" * 9000 + b" ")), 414, "target_too_long"),
    "header of 100 KB": (chat(b"x: " + b"y" * 100_000 + b"\r\n"), 431, "headers_too_large"),
    "name of 100 KB": (chat(b"x" * 100_000 + b": y\r\n"), 431, "headers_too_large"),
    "101 headers": (chat(b"x: y\r\n" * 98), 431, "headers_too_large"),
}  # fmt: skip

# Odd, and yet HTTP: served.
SERVED: dict[str, bytes] = {
    "length with leading zeros": chat(length=b"content-length: %030d\r\n" % len(BODY)),
    "no blank behind the colon": chat(length=b"content-length:%d\r\n" % len(BODY)),
    "blanks around a value": chat(length=b"content-length: \t %d \t \r\n" % len(BODY)),
    "names in capitals": chat(identity=IDENTITY.replace(b"host", b"HOST").replace(b"authorization", b"AUTHORIZATION")),
    "value not in ASCII": chat(b"x: \xff\xfe\r\n"),
    "empty value": chat(b"x:\r\n"),
    "empty Host": chat(identity=IDENTITY.replace(b"gateway", b"")),
    "Host with a port": chat(identity=IDENTITY.replace(b"gateway", b"[::1]:8080")),
    "absolute target": chat(start=POST.replace(b"/v1", b"http://other:80/v1")),
    "query": chat(start=POST.replace(b"ions ", b"ions?api-version=1 ")),
    "offer of h2c": chat(b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"),
    "offer of a web socket": chat(b"connection: upgrade\r\nupgrade: websocket\r\n"),
    "blank lines before it": b"\r\n\r\n" + chat(),
    "100 headers": chat(b"x: y\r\n" * 97),
    "expectation with the body": chat(b"expect: 100-continue\r\n"),
    "expectation in capitals": chat(b"Expect: 100-Continue\r\n"),
    "length in an underscored header": chat(b"content_length: 5\r\ntransfer_encoding: chunked\r\n"),
    "headers of proxies": chat(b"x-forwarded-host: evil\r\nx-http-method-override: DELETE\r\nx-original-url: /\r\n"),
}

# Refused with the connection going on: where the next request begins is beyond doubt.
CONTINUED: dict[str, tuple[bytes, int, str]] = {
    "unknown path": (chat(start=POST.replace(b"chat", b"chit")), 404, "path_not_found"),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\n" + IDENTITY + b"\r\n", 404, "path_not_found"),
    "authority": (b"CONNECT other:80 HTTP/1.1\r\n" + IDENTITY + b"\r\n", 404, "path_not_found"),
    "authority with a body": (chat(start=b"CONNECT other:80 HTTP/1.1\r\n"), 404, "path_not_found"),
    "absolute target elsewhere": (chat(start=POST.replace(b"/v1", b"ftp://other/v1")), 404, "path_not_found"),
    "fragment": (chat(start=POST.replace(b"ions ", b"ions#x ")), 404, "path_not_found"),
    "path upwards": (chat(start=POST.replace(b"/v1", b"/v1/../v1")), 404, "path_not_found"),
    "wrong method": (chat(start=POST.replace(b"POST", b"PUT")), 405, "method_not_allowed"),
    "TRACE": (chat(start=POST.replace(b"POST", b"TRACE")), 405, "method_not_allowed"),
    "no credential": (POST + b"host: gateway\r\n" + LENGTH + b"\r\n" + BODY, 401, "invalid_api_key"),
    "unknown credential": (chat(identity=IDENTITY.replace(b"cp_test", b"cp_best")), 401, "invalid_api_key"),
    "no length": (POST + IDENTITY + b"\r\n", 400, "empty_body"),
    "length zero": (POST + IDENTITY + b"content-length: 0\r\n\r\n", 400, "empty_body"),
    "line ends in a path": (chat(start=POST.replace(b"/v1/chat", b"/v1%0d%0aset-cookie:%20a")), 404, "path_not_found"),
    "line ends in a name": (
        b"GET /v1/models/a%0d%0aset-cookie:%20b HTTP/1.1\r\n" + IDENTITY + b"\r\n", 404, "model_not_found"),
    "body where none is read": (chat(start=b"GET /v1/models/none HTTP/1.1\r\n"), 404, "model_not_found"),
}  # fmt: skip


async def deliver(here: Rig, peer: Peer, data: bytes, size: int) -> None:
    for piece in pieces(data, size):
        await here.sent(peer, piece)


def deliveries(data: bytes) -> tuple[int, ...]:
    """The sizes of pieces to send in: all at once, and one by one (larger where that takes for ever)."""
    return len(data), 1 if len(data) <= BYTEWISE_MAX else 1021


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_head_gets_one_answer_and_a_clean_end(tmp_path: Path, name: str) -> None:
    sent, status, code = REFUSED[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            for size in deliveries(sent + SMUGGLED):
                peer = await here.peer()
                await deliver(here, peer, sent + SMUGGLED, size)
                replies = await peer.replies()
                assert [(reply.status, reply.code) for reply in replies] == [(status, code)]
                assert replies[0].headers["connection"] == "close"
                assert not replies[0].interim
                assert not here.engine.calls

    run(main)


@pytest.mark.parametrize("name", SERVED)
def test_an_odd_head_is_served_and_the_next_request_begins_where_it_ends(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            for size in deliveries(SERVED[name]):
                peer = await here.peer()
                mark = here.mark()
                await deliver(here, peer, SERVED[name], size)
                assert_answers(await peer.reply(), HIDDEN)
                peer.send(asking(mark))
                assert_answers(await peer.reply(), mark)

    run(main)


@pytest.mark.parametrize("name", CONTINUED)
def test_a_refused_request_leaves_the_connection_where_the_next_begins(tmp_path: Path, name: str) -> None:
    sent, status, code = CONTINUED[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            for size in deliveries(sent):
                peer = await here.peer()
                mark = here.mark()
                await deliver(here, peer, sent + asking(mark), size)
                reply = await peer.reply()
                assert (reply.status, reply.code) == (status, code)
                assert_answers(await peer.reply(), mark)
                assert [call.body.count(HIDDEN) for call in here.engine.calls] == [0] * len(here.engine.calls)

    run(main)


def test_what_follows_a_last_request_is_thrown_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            for headers in ("connection: close\r\n", "connection: keep-alive, Close\r\n"):
                peer = await here.peer()
                mark = here.mark()
                peer.send(asking(mark, headers=headers) + SMUGGLED)
                (reply,) = await peer.replies()
                assert_answers(reply, mark)
                assert reply.headers["connection"] == "close"

    run(main)


def test_head_has_no_body_and_the_same_headers(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            peer.send(b"".join(get(path, method) for path in ("/healthz", "/v1/none") for method in ("GET", "HEAD")))
            for status in (200, 404):
                whole, bare = await peer.reply(), await peer.reply(bodyless=True)
                assert whole.status == bare.status == status
                assert whole.headers["content-length"] == bare.headers["content-length"] == str(len(whole.body))
                assert not bare.body

    run(main)


def test_nothing_of_a_head_reaches_the_engine_but_a_good_trace(tmp_path: Path) -> None:
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    others = "x-tenant: other\r\ncookie: a=b\r\nuser-agent: me\r\nx-request-id: mine\r\nexpect: 100-continue\r\n"

    async def main() -> None:
        async with rig(tmp_path) as here:
            for trace, expected in ((good, good), (good.upper(), None), (good + "-x", None)):
                peer = await here.peer()
                mark = here.mark()
                peer.send(asking(mark, headers=f"{others}traceparent: {trace}\r\n"))
                reply = await peer.reply()
                assert_answers(reply, mark)
                assert "mine" not in str(reply.headers)
                headers = here.engine.calls[-1].headers
                assert headers.pop("traceparent", None) == expected
                assert headers.pop("user-agent") == "commonpool"
                assert headers.keys() == {"host", "accept", "content-type", "content-length"}

    run(main)


def test_a_reset_after_a_refusal_is_quiet(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            for sent, *_ in REFUSED.values():
                peer = await here.peer()
                peer.send(sent[:4096])
                await asyncio.sleep(0)
                peer.reset()

    run(main)
