"""Bodies that lie about their length, are framed badly, are too large, or are not the JSON they should be."""

from pathlib import Path

import msgspec
import pytest

from tests.faults.rig import asking, assert_answers, body, marks, pieces, rig
from tests.gateway.fakes import SECOND, get, post, run

HIDDEN = b"mark-999999-"
BODY = body(HIDDEN)
SMUGGLED = asking(HIDDEN)
IDENTITY = b"host: gateway\r\nauthorization: Bearer cp_test\r\n"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\n" + IDENTITY
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SIZE = b"%x" % len(BODY)
LIMIT = 64 * 1024
BYTEWISE_MAX = 2000


def one_chunk(size: bytes = SIZE, end: bytes = b"\r\n", last: bytes = b"0\r\n\r\n") -> bytes:
    """The body as one chunk, each line of its framing as told."""
    return CHUNKED + size + b"\r\n" + BODY + end + last


# Refused with 400 `malformed_body` and a clean end.
BAD_CHUNKS: dict[str, bytes] = {
    "no size": one_chunk(b""),
    "size of blanks": one_chunk(b"  "),
    "negative size": one_chunk(b"-1"),
    "size with a plus": one_chunk(b"+" + SIZE),
    "size with 0x": one_chunk(b"0x" + SIZE),
    "size with an underscore": one_chunk(b"0_" + SIZE),
    "size that is a word": one_chunk(b"size"),
    "blank before the size": one_chunk(b" " + SIZE),
    "blank behind the size": one_chunk(SIZE + b" "),
    "size in other digits": one_chunk("\u0665".encode()),
    "size of 64 bits": one_chunk(b"ffffffffffffffff"),
    "size over 64 bits": one_chunk(b"10000000000000005"),
    "size of very many zeros": one_chunk(b"0" * 5000 + SIZE),
    "comma for a semicolon": one_chunk(SIZE + b",a=b"),
    "LF in an extension": one_chunk(SIZE + b";a\nb"),
    "CR in an extension": one_chunk(SIZE + b";a\rb"),
    "NUL in an extension": one_chunk(SIZE + b";a\0b"),
    "extension of 5 KB": one_chunk(SIZE + b";" + b"a" * 5000),
    "a hundred thousand extensions": CHUNKED + b"1;a=bcdefghijklmnopq\r\n{\r\n" * 4000,
    "size ended by LF": CHUNKED + SIZE + b"\n" + BODY + b"\r\n0\r\n\r\n",
    "size ended by CR": CHUNKED + SIZE + b"\r" + BODY + b"\r\n0\r\n\r\n",
    "chunk ended by LF": one_chunk(end=b"\n"),
    "chunk without an end": one_chunk(end=b""),
    "chunk longer than told": one_chunk(b"5"),
    "chunk shorter than told": one_chunk(b"%x" % (len(BODY) + 3)),
    "last chunk without its end": one_chunk(last=b"0\r\n"),
    "last chunk ended by LF": one_chunk(last=b"0\n\n"),
    "trailer without a colon": one_chunk(last=b"0\r\nhello\r\n\r\n"),
    "trailer without a name": one_chunk(last=b"0\r\n: x\r\n\r\n"),
    "trailer with a blank before its colon": one_chunk(last=b"0\r\nx : y\r\n\r\n"),
    "trailer on a folded line": one_chunk(last=b"0\r\nx: y\r\n z\r\n\r\n"),
    "trailer of 5 KB": one_chunk(last=b"0\r\nx: " + b"y" * 5000 + b"\r\n\r\n"),
    "very many trailers": one_chunk(last=b"0\r\n" + b"x: y\r\n" * 20_000 + b"\r\n"),
}

# Served, and the next request begins where the body ends.
GOOD_CHUNKS: dict[str, bytes] = {
    "one chunk": one_chunk(),
    "leading zeros": one_chunk(b"00000" + SIZE),
    "size in capitals": CHUNKED + b"".join(b"%X\r\n%b\r\n" % (len(x), x) for x in pieces(BODY, 11)) + b"0\r\n\r\n",
    "extensions": one_chunk(SIZE + b' ; a="b;c" ;d', last=b"0;e\r\n\r\n"),
    "last chunk of many zeros": one_chunk(last=b"000000\r\n\r\n"),
    "trailers": one_chunk(last=b"0\r\nx-checksum: 1\r\n\r\n"),
    "forbidden trailers": one_chunk(
        last=b"0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: y\r\nAuthorization: z\r\nExpect: w\r\n\r\n"
    ),
    "a chunk a byte": CHUNKED + b"".join(b"1\r\n%b\r\n" % x for x in pieces(BODY, 1)) + b"0\r\n\r\n",
}


# Refused with 400 `malformed_json`, naming the byte behind the bar.
BAD_JSON: dict[str, bytes] = {
    "UTF-8 cut short": b'{"model":"tiny","x":"|\xe2\x82"}',
    "UTF-8 overlong": b'{"model":"tiny","x":"|\xc0\xaf"}',
    "UTF-8 of a surrogate": b'{"model":"tiny","x":"|\xed\xa0\x80"}',
    "Latin-1 in a key": b'{"model":"tiny","|\xe9":1}',
    "UTF-16": b"|" + '{"model":"tiny"}'.encode("utf-16"),
    "byte order mark": b'|\xef\xbb\xbf{"model":"tiny"}',
    "trailing word": b'{"model":"tiny"} |x',
    "trailing NUL": b'{"model":"tiny"}|\0',
    "trailing brace": b'{"model":"tiny"}|}',
    "two objects": b'{"model":"tiny"}|{"model":"tiny"}',
    "form": b"|model=tiny",
    "NaN": b'{"model":"tiny","x":|NaN}',
    "Infinity": b'{"model":"tiny","x":-|Infinity}',
    "leading zero": b'{"model":"tiny","x":0|1}',
    "leading plus": b'{"model":"tiny","x":|+1}',
    "leading point": b'{"model":"tiny","x":|.5}',
    "nothing behind the point": b'{"model":"tiny","x":1.|}',
    "hexadecimal": b'{"model":"tiny","x":0|x10}',
    "trailing comma": b'{"model":"tiny",|}',
    "trailing comma in a list": b'{"model":"tiny","x":[1,|]}',
    "no comma": b'{"model":"tiny" |"x":1}',
    "no colon": b'{"model" |"tiny"}',
    "comment": b'{"model":"tiny"|/**/}',
    "single quotes": b"{|'model':'tiny'}",
    "bare key": b"{|model:1}",
    "LF in a string": b'{"model":"tiny","x":"a|\nb"}',
    "NUL in a string": b'{"model":"tiny","x":"a|\0b"}',
    "unknown escape": b'{"model":"tiny","x":"\\|q"}',
    "bad hexadecimal in an escape": b'{"model":"tiny","x":"\\u12z|z"}',
    "on the third line": b'{\n"model":"tiny",\n "x":n|ul}',
    "cut short": b'{"model":"tiny","x":[1|',
    "nothing but a brace": b"{|",
}


def messages(content: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"tiny","messages":[{"role":"user","content":%b}]%b}' % (content, more)


# Refused with 400 and another code: they are JSON.
WRONG_JSON: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty_body"),
    "blanks": (b" \r\n\t ", "empty_body"),
    "list": (b"[" + BODY + b"]", "not_an_object"),
    "null": (b"null", "not_an_object"),
    "string": (b'"' + b"x" * 1000 + b'"', "not_an_object"),
    "100,000 brackets": (b"[" * 100_000, "not_an_object"),
    "100,000 brackets in a message": (messages(b"[" * 100_000 + b"]" * 100_000), "too_deep"),
    "40,000 objects": (b'{"a":' * 40_000, "too_deep"),
    "model is a number": (b'{"model":1,"messages":[]}', "invalid_parameter"),
    "model is null": (b'{"model":null,"messages":[]}', "invalid_parameter"),
    "the last of two models": (messages(b'"x"', b',"model":"none"'), "model_not_found"),
    "the last of two models, escaped": (messages(b'"x"', b',"mod\\u0065l":"none"'), "model_not_found"),
    "endless number": (messages(b'"x"', b',"max_tokens":' + b"9" * 5000), "invalid_parameter"),
    "number over 64 bits": (messages(b'"x"', b',"max_tokens":18446744073709551616'), "invalid_parameter"),
    "number over all floats": (messages(b'"x"', b',"max_tokens":1e999'), "invalid_parameter"),
    "negative number": (messages(b'"x"', b',"max_tokens":-1'), "invalid_parameter"),
    "zero": (messages(b'"x"', b',"n":0'), "invalid_parameter"),
    "number in a string": (messages(b'"x"', b',"n":"1"'), "invalid_parameter"),
    "true for a number": (messages(b'"x"', b',"n":true'), "invalid_parameter"),
    "number for true": (messages(b'"x"', b',"stream":1'), "invalid_parameter"),
    "text for options": (messages(b'"x"', b',"stream":true,"stream_options":"x"'), "invalid_parameter"),
    "messages is an object": (b'{"model":"tiny","messages":{}}', "invalid_parameter"),
}

# Passed on: what the engine reads is what was checked here, each field once.
PASSED_JSON: dict[str, bytes] = {
    "escaped key": b'{"m\\u006fdel":"tiny","messages":["mark-999999-"]}',
    "model twice": b'{"model":"none","model":"tiny","messages":["mark-999999-"]}',
    "model twice, escaped": b'{"mod\\u0065l":"none","model":"tiny","messages":["mark-999999-"]}',
    "number over all floats elsewhere": b'{"model":"tiny","messages":["mark-999999-"],"temperature":1e999}',
    "number of 1,000 digits elsewhere": b'{"model":"tiny","messages":["mark-999999-"],"seed":%b}' % (b"9" * 1000),
    "blanks all over": b' {\r\n"model" :\t"tiny" , "messages": [ "mark-999999-" ] } \n',
    "90 levels": b'{"model":"tiny","messages":["mark-999999-"],"x":%b1%b}' % (b"[" * 90, b"]" * 90),
    "pair of surrogates": b'{"model":"tiny","messages":["mark-999999-\\ud83d\\ude00"]}',
    "fields of other identities": (
        b'{"model":"tiny","messages":["mark-999999-"],"user":"x","priority":9,"cache_salt":"y","n_predict":5}'
    ),
}


def sizes(data: bytes) -> tuple[int, ...]:
    return len(data), 1 if len(data) <= BYTEWISE_MAX else 1021


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_framing_gets_one_answer_and_a_clean_end(tmp_path: Path, name: str) -> None:
    sent = BAD_CHUNKS[name] + SMUGGLED

    async def main() -> None:
        async with rig(tmp_path) as here:
            for size in sizes(sent):
                peer = await here.peer()
                for piece in pieces(sent, size):
                    await here.sent(peer, piece)
                (reply,) = await peer.replies()
                assert (reply.status, reply.code) == (400, "malformed_body")
                assert not here.engine.calls

    run(main)


@pytest.mark.parametrize("name", GOOD_CHUNKS)
def test_odd_framing_is_served_and_ends_where_it_ends(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            for size in sizes(GOOD_CHUNKS[name]):
                mark = here.mark()
                for piece in pieces(GOOD_CHUNKS[name], size):
                    await here.sent(peer, piece)
                peer.send(asking(mark))
                assert_answers(await peer.reply(), HIDDEN)
                assert_answers(await peer.reply(), mark)

    run(main)


@pytest.mark.parametrize("name", BAD_JSON)
def test_malformed_json_is_refused_with_its_position(tmp_path: Path, name: str) -> None:
    before, _, after = BAD_JSON[name].partition(b"|")

    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            peer.send(post(before + after))
            reply = await peer.reply()
            line = before.count(b"\n") + 1
            column = len(before) - before.rfind(b"\n")
            assert (reply.status, reply.code) == (400, "malformed_json")
            assert f"line {line}, column {column} (byte {len(before)})" in reply.json["error"]["message"]
            assert not here.engine.calls
            mark = here.mark()
            peer.send(asking(mark))
            assert_answers(await peer.reply(), mark)

    run(main)


@pytest.mark.parametrize("name", WRONG_JSON)
def test_json_that_asks_for_nothing_sensible_is_refused(tmp_path: Path, name: str) -> None:
    raw, code = WRONG_JSON[name]

    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            peer.send(post(raw))
            reply = await peer.reply()
            assert (reply.status, reply.code) == (404 if code == "model_not_found" else 400, code)
            assert len(reply.body) < 1000
            assert not here.engine.calls
            mark = here.mark()
            peer.send(asking(mark))
            assert_answers(await peer.reply(), mark)

    run(main)


@pytest.mark.parametrize("entry", [b'"x"', b"[1]", b"[]"])
def test_a_flood_of_prompts_is_refused(tmp_path: Path, entry: bytes) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            for count, code in ((2048, "never_fits"), (2049, "invalid_parameter"), (50_000, "invalid_parameter")):
                peer.send(post(b'{"model":"tiny","prompt":[%b]}' % b",".join([entry] * count), "/v1/completions"))
                reply = await peer.reply()
                assert (reply.status, reply.code) == (400, code)

    run(main)


@pytest.mark.parametrize("name", PASSED_JSON)
def test_odd_json_reaches_the_engine_as_it_was_checked(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            peer = await here.peer()
            peer.send(post(PASSED_JSON[name]))
            assert_answers(await peer.reply(), HIDDEN)
            (call,) = here.engine.calls
            assert call.body.count(b'"model"') == 1
            assert b"none" not in call.body
            fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
            assert bytes(fields["model"]) == b'"served/tiny"'
            assert not {"user", "priority", "cache_salt", "n_predict"} & fields.keys()

    run(main)


@pytest.mark.parametrize("told", [True, False])
def test_a_body_over_the_limit_is_refused_while_it_is_sent(tmp_path: Path, *, told: bool) -> None:
    size = 4 * 1024 * 1024
    head = HEAD + b"content-length: %d\r\n\r\n" % size if told else CHUNKED

    async def main() -> None:
        async with rig(tmp_path, body_bytes_max=LIMIT) as here:
            peer = await here.peer()
            peer.send(head)
            for piece in pieces(b" " * size, 64 * 1024):
                peer.send(piece if told else b"%x\r\n%b\r\n" % (len(piece), piece))
                await peer.drain()
            peer.send(SMUGGLED)
            (reply,) = await peer.replies()
            assert (reply.status, reply.code) == (413, "body_too_large")
            assert not here.engine.calls

    run(main)


def test_a_body_of_just_the_limit_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, body_bytes_max=LIMIT) as here:
            for size, status in ((LIMIT, 200), (LIMIT + 1, 413)):
                peer = await here.peer()
                mark = here.mark()
                raw = body(mark)
                raw = raw[:-1] + b" " * (size - len(raw)) + raw[-1:]
                peer.send(post(raw))
                assert (await peer.reply()).status == status
                peer = await here.peer()
                peer.send(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(raw), raw))
                reply = await peer.reply()
                assert reply.status == status
                assert marks(reply.body) == ({mark} if status == 200 else set())

    run(main)


def test_bodies_that_are_too_much_together_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            here.gateway.held_max = 60_000  # of which one tenant may have half
            first, second, third = [await here.peer() for _ in range(3)]
            await here.sent(first, HEAD + b"content-length: 25000\r\n\r\n" + b" " * 20_000)
            await here.sent(second, HEAD + b"content-length: 15000\r\n\r\n")
            (reply,) = await second.replies()
            assert (reply.status, reply.code) == (503, "memory")
            await here.sent(third, CHUNKED + b"%x\r\n" % 15_000 + b" " * 12_000)
            (reply,) = await third.replies()
            assert (reply.status, reply.code) == (503, "memory")
            mark = here.mark()
            raw = body(mark)
            first.send(b" " * (5000 - len(raw)) + raw)
            assert_answers(await first.reply(), mark)

    run(main)


def test_an_expected_body_is_asked_for_once_and_only_when_it_is_wanted(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path, body_bytes_max=LIMIT) as here:
            mark = here.mark()
            head, _, raw = asking(mark, headers="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
            peer = await here.peer()
            await here.sent(peer, head + b"\r\n\r\n")
            await peer.heard_of(b"HTTP/1.1 100 Continue\r\n\r\n")
            await here.sent(peer, raw[:10])
            await here.sent(peer, raw[10:])
            reply = await peer.reply()
            assert reply.interim == (100,)
            assert_answers(reply, mark)

            for length, status in ((LIMIT + 1, 413), (LIMIT, 0)):
                peer = await here.peer()
                await here.sent(peer, HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % length)
                if status:
                    (reply,) = await peer.replies()
                    assert (reply.status, reply.interim) == (status, ())
                else:
                    await peer.heard_of(b"100 Continue")

            older = await here.peer()
            await here.sent(older, (head + b"\r\n\r\n").replace(b"1.1", b"1.0"))
            here.pass_time(SECOND)
            older.send(raw)
            (reply,) = await older.replies()
            assert (reply.status, reply.interim) == (200, ())

    run(main)


def test_a_body_where_none_is_expected_is_not_the_next_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with rig(tmp_path) as here:
            for method in ("GET", "HEAD", "DELETE"):
                peer = await here.peer()
                peer.send(get("/healthz", method, f"content-length: {len(SMUGGLED)}\r\n") + SMUGGLED)
                await peer.reply(bodyless=method == "HEAD")
                mark = here.mark()
                peer.send(asking(mark))
                assert_answers(await peer.reply(), mark)
                assert [marks(call.body) for call in here.engine.calls] == [{mark}]
                here.engine.calls.clear()

    run(main)
