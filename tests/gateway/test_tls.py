"""The gateway behind TLS: real clients, those that may not come, those that are slow, and how answers end there."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from cryptography import x509

from commonpool.config.structs import Listen, Timeouts, Tls
from commonpool.gateway.identity import Principal
from tests.access.certificates import Authority
from tests.gateway.fakes import (
    SECOND,
    Client,
    World,
    chat,
    chat_answer,
    config,
    done_event,
    get,
    post,
    principal,
    run,
    text_event,
    until,
    usage_event,
    world,
)
from tests.leaks import MARK

MESSAGES: Any = [{"role": "user", "content": MARK}]
HEALTH = get("/healthz", key=None)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Tls:
    return authority.issue("server")


def known(authorization: bytes) -> Principal | None:
    return principal() if authorization == b"Bearer cp_test" else None


@contextlib.asynccontextmanager
async def secure(files: Tls, **timeouts: int) -> AsyncIterator[World]:
    configured = msgspec.structs.replace(config(timeouts=Timeouts(**timeouts)), listen=Listen(gateway_tls=files))
    async with world(configured, identify=known) as here:
        yield here


async def connected(here: World, context: ssl.SSLContext) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=context)
    return Client(reader, writer)


def api(here: World, context: ssl.SSLContext) -> openai.AsyncOpenAI:
    base_url = f"https://127.0.0.1:{here.port}/v1"
    http = openai.DefaultAsyncHttpxClient(verify=context)
    return openai.AsyncOpenAI(base_url=base_url, api_key="cp_test", max_retries=0, timeout=180, http_client=http)


def test_the_openai_client_whole_and_streamed(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here, api(here, authority.trusting()) as client:
            answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)
            assert answer.choices[0].message.content == "hi there"
            here.engine.script = lambda call: call.stream(
                text_event("Hé"), text_event("llo"), usage_event(7, 2), done_event()
            )
            stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Héllo"
            assert len(here.gateway.connections) == 1  # kept alive

    run(main)


def test_a_client_with_another_authority_does_not_trust_it(server: Tls, tmp_path: Path) -> None:
    async def main() -> None:
        async with secure(server) as here, api(here, Authority(tmp_path, "other").trusting()) as client:
            with pytest.raises(openai.APIConnectionError) as caught:
                await client.chat.completions.create(model="tiny", messages=MESSAGES)
            assert "CERTIFICATE_VERIFY_FAILED" in repr(caught.value.__cause__)
            assert not here.desk.requests

    run(main)


def test_only_clients_with_a_certificate_of_the_authority(authority: Authority, server: Tls, tmp_path: Path) -> None:
    files = msgspec.structs.replace(server, client_ca=authority.file)
    ours = authority.issue("client", client=True)
    theirs = Authority(tmp_path, "other").issue("stranger", client=True)

    async def main() -> None:
        async with secure(files) as here:
            async with api(here, authority.trusting(ours)) as client:
                answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)
                assert answer.choices[0].message.content == "hi there"
            for stranger in (None, theirs):
                async with api(here, authority.trusting(stranger)) as client:
                    with pytest.raises(openai.APIConnectionError):
                        await client.chat.completions.create(model="tiny", messages=MESSAGES)
            assert len(here.desk.requests) == 1

    run(main)


def test_a_session_is_not_taken_up_without_a_certificate(authority: Authority, server: Tls) -> None:
    files = msgspec.structs.replace(server, client_ca=authority.file)
    context = authority.trusting(authority.issue("client", client=True))

    async def main() -> None:
        async with secure(files) as here:
            client = await connected(here, context)
            assert (await client.ask(HEALTH)).status == 200
            session = client.writer.get_extra_info("ssl_object").session
            assert session is None or not session.has_ticket
            await client.close()

    run(main)


@pytest.mark.parametrize(("version", "serves"), [("TLSv1_2", True), ("TLSv1_3", True), ("TLSv1_1", False)])
def test_old_versions_are_refused(authority: Authority, server: Tls, version: str, serves: bool) -> None:
    async def main() -> None:
        async with secure(server) as here:
            context = authority.trusting()
            context.set_ciphers("ALL:@SECLEVEL=0")  # so that it is not the client that refuses
            with contextlib.nullcontext() if serves else pytest.warns(DeprecationWarning, match="TLSv1_1"):
                context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
            if serves:
                client = await connected(here, context)
                assert (await client.ask(HEALTH)).status == 200
                await client.close()
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await connected(here, context)

    run(main)


def test_a_plain_client_gets_nothing_and_harms_nobody(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            plain = await here.client()
            plain.send(post(chat()))
            assert b"HTTP/1.1 200" not in await _rest(plain)
            client = await connected(here, authority.trusting())
            assert (await client.ask(post(chat()))).status == 200
            assert len(here.desk.requests) == 1
            await client.close()

    run(main)


def test_a_handshake_that_does_not_come_is_given_up(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server, header_ns=SECOND // 5) as here:
            silent = await here.client()
            assert await silent.ended()
            half = await here.client()
            half.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
            assert await half.ended()
            assert not here.gateway.connections
            client = await connected(here, authority.trusting())
            assert (await client.ask(HEALTH)).status == 200
            await client.close()

    run(main)


def test_those_that_leave_in_the_middle_leave_nothing(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            for said in (b"", b"\x16\x03\x01\x02\x00\x01"):
                client = await here.client()
                client.send(said)
                await asyncio.sleep(0.02)
                client.abort()
            door = here.gateway._door
            assert door is not None
            await until(lambda: len(door) == 0)
            client = await connected(here, authority.trusting())
            client.abort()
            await until(lambda: not here.gateway.connections)

    run(main)


def test_a_request_that_comes_with_the_end_of_the_handshake(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            raw = await here.client()
            to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = authority.trusting().wrap_bio(to_client, to_server, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            raw.send(to_server.read())
            while True:
                to_client.write(await raw.reader.read(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                    break
            tls.write(HEALTH)
            raw.send(to_server.read())  # one packet
            said = b""
            while b"ok" not in said:
                to_client.write(await raw.reader.read(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    said += tls.read(65536)
            assert said.startswith(b"HTTP/1.1 200 ")

    run(main)


def test_a_new_certificate_is_for_those_that_connect_from_now_on(authority: Authority) -> None:
    async def main() -> None:
        files = authority.issue("renewed")
        async with secure(files) as here:
            before = await connected(here, authority.trusting())
            assert (await before.ask(HEALTH)).status == 200
            authority.issue("renewed")
            door = here.gateway._door
            assert door is not None
            assert door.certificate.refresh()
            after = await connected(here, authority.trusting())
            assert (await before.ask(HEALTH)).status == (await after.ask(HEALTH)).status == 200
            assert _serial(before) != _serial(after)
            await before.close()
            await after.close()

    run(main)


# -- how answers end ---------------------------------------------------------------------------------------------------


def test_the_last_answer_is_read_whole_before_the_end(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            here.engine.script = lambda call: call.answer(chat_answer("x" * 3_000_000))
            client = await connected(here, authority.trusting())
            answer = await client.ask(post(chat(), headers="connection: close\r\n"))
            assert len(answer.body) > 3_000_000
            assert await client.ended()
            await until(lambda: not here.gateway.connections)
            await client.close()

    run(main)


def test_a_stream_to_an_old_client_ends_with_the_connection(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            here.engine.script = lambda call: call.stream(text_event("hi"), usage_event(), done_event())
            client = await connected(here, authority.trusting())
            answer = await client.ask(post(chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert answer.body.endswith(done_event())
            await client.close()

    run(main)


def test_a_refusal_is_read_by_a_client_that_still_sends(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            client = await connected(here, authority.trusting())
            body = b"x" * 3_000_000
            client.send(post(body, key=b"Bearer wrong"))
            answer = await client.answer()
            assert answer.status == 401
            await client.close()

    run(main)


def test_a_slow_reader_pauses_its_engine(authority: Authority, server: Tls) -> None:
    async def main() -> None:
        async with secure(server) as here:
            here.engine.script = lambda call: call.begin_stream()
            client = await connected(here, authority.trusting())
            client.send(post(chat(stream=True)))
            await until(lambda: bool(here.engine.calls))
            (call,) = here.engine.calls
            one, count = text_event("x" * 50_000), 400
            for _ in range(count):
                call.chunk(one)
            (connection,) = here.gateway.connections
            await until(lambda: connection.stalled)
            await asyncio.sleep(0.05)
            assert call.transport.get_write_buffer_size() > 0
            call.chunk(done_event())
            call.send(b"0\r\n\r\n")
            await client.head()
            received = sum([len(piece) async for piece in client.chunks()])
            assert received == count * len(one) + len(done_event())
            await client.close()

    run(main)


def test_curl_sees_nothing_odd(authority: Authority, server: Tls) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl")

    async def main() -> None:
        async with secure(server) as here:
            url = f"https://127.0.0.1:{here.port}"
            command = [curl, "-sS", "--cacert", str(authority.file), f"{url}/healthz", f"{url}/healthz"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False, timeout=180)
            assert (done.stdout, done.stderr) == (b'{"status":"ok"}' * 2, b"")

    run(main)


async def _rest(client: Client) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await client.reader.read()
    return b""


def _serial(client: Client) -> int:
    der = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(der).serial_number
