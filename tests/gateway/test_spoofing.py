"""Who a request is of comes from its key alone: what else it says of that changes nothing and reaches no engine."""

import json
from typing import Any

import pytest

from commonpool.core.model import Request
from commonpool.gateway.identity import Identity
from commonpool.store.keys import mint
from tests.gateway.fakes import Call, World, chat, get, post, run, world

MARK = "other-tenant-4f1c"  # nothing of this may be seen at the engine, nor in what the core is told

# Fields of the body by which clients, libraries and other gateways say who they are, where to go, and what to share.
FIELDS: dict[str, Any] = {
    "user": MARK,
    "metadata": {"tenant": MARK, "user_api_key_team_id": MARK},
    "priority": -7,
    "cache_salt": MARK,
    "x_cache_salt": MARK,
    "extra_key": MARK,
    "safety_identifier": MARK,
    "store": True,
    "tenant": MARK,
    "tenant_id": MARK,
    "customer": MARK,
    "api_base": f"http://{MARK}.example/v1",
    "base_url": f"http://{MARK}.example/v1",
    "api_key": MARK,
    "extra_headers": {"authorization": f"Bearer {MARK}"},
    "callback_url": f"http://{MARK}.example/hook",
    "webhook_url": f"http://{MARK}.example/hook",
    "request_id": MARK,
    "rid": MARK,
    "id_slot": 3,
    "slot_id": 3,
    "cache_prompt": True,
    "data_parallel_rank": 1,
    "routed_dp_rank": 1,
    "kv_transfer_params": {"remote_host": MARK},
    "vllm_xargs": {"kv_transfer_params": {"remote_host": MARK}},
    "bootstrap_host": MARK,
    "bootstrap_port": 1,
    "bootstrap_room": 1,
    "session_params": {"id": MARK},
    "lora": [{"id": 0, "scale": 1.0}],
    "lora_path": MARK,
    "prompt_embeds": MARK,
    "chat_template": MARK,
    "custom_logit_processor": MARK,
    "logits_processors": [MARK],
    "mm_processor_kwargs": {"images": f"http://{MARK}.example/"},
    "media_io_kwargs": {"image": {"path": MARK}},
    "multi_modal_data": {"image": f"http://{MARK}.example/"},
    "image_data": f"http://{MARK}.example/",
    "video_data": f"http://{MARK}.example/",
    "audio_data": f"http://{MARK}.example/",
    "extra_query": {"tenant": MARK},
    "litellm_params": {"api_base": MARK},
    "n_predict": 10_000,
    "n_cmpl": 9,
    "return_progress": True,
}
NESTED = {
    "extra_body": {**FIELDS, "extra_body": FIELDS},
    "chat_template_kwargs": {"enable_thinking": False, **FIELDS},
}
HEADERS = {
    "x-tenant": MARK,
    "x-tenant-id": MARK,
    "x-commonpool-tenant": MARK,
    "x-scope-orgid": MARK,
    "openai-organization": MARK,
    "openai-project": MARK,
    "x-user": MARK,
    "x-end-user-id": MARK,
    "x-litellm-customer-id": MARK,
    "x-litellm-tags": MARK,
    "x-priority": "0",
    "x-cache-salt": MARK,
    "x-api-key": MARK,
    "api-key": MARK,
    "x-api-base": f"http://{MARK}.example",
    "x-callback-url": f"http://{MARK}.example",
    "x-request-id": MARK,
    "x-data-parallel-rank": "1",
    "x-session-id": MARK,
    "x-forwarded-for": "10.1.2.3",
    "x-forwarded-host": MARK,
    "x-forwarded-proto": "https",
    "x-forwarded-user": MARK,
    "x-real-ip": "10.1.2.3",
    "true-client-ip": "10.1.2.3",
    "cf-connecting-ip": "10.1.2.3",
    "forwarded": "for=10.1.2.3",
    "via": MARK,
    "cookie": f"tenant={MARK}",
    "baggage": f"tenant={MARK}",
    "proxy-authorization": f"Bearer {MARK}",
    "x-original-url": f"/{MARK}",
    "x-http-method-override": "GET",
}


def spellings(name: str) -> list[str]:
    """One field under other names that somebody may take for it, or that JSON reads as the same."""
    first, *rest = name.split("_")
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
    return [
        json.dumps(name),
        f'"{escaped}"',
        f'"\\u{ord(name[0]):04X}{name[1:]}"',
        json.dumps(name.upper()),
        json.dumps(name.replace("_", "-")),
        json.dumps(first + "".join(map(str.capitalize, rest))),
        json.dumps(f" {name} "),
        json.dumps(
            "".join(chr(ord(letter) + 0xFEE0) if letter != "_" else letter for letter in name), ensure_ascii=False
        ),
    ]


def body_with(*fields: tuple[str, Any], before: bool = False) -> bytes:
    """A chat request as bytes, with fields whose names are JSON already."""
    own = json.dumps(chat())[1:-1]
    more = ",".join(f"{name}:{json.dumps(value)}" for name, value in fields)
    parts = [more, own] if before else [own, more]
    return f"{{{','.join(part for part in parts if part)}}}".encode()


async def asked(here: World, body: bytes, headers: str = "") -> tuple[Request, Call]:
    """What the core and the engine were told of it."""
    client = await here.client()
    answer = await client.ask(post(body, headers=headers))
    assert answer.status == 200, answer.body
    return here.desk.requests[-1], here.engine.calls[-1]


def told(request: Request) -> dict[str, Any]:
    """What decides of a request, and what it costs: all but its name and the size of its body."""
    return {name: getattr(request, name) for name in request.__struct_fields__ if name not in ("id", "bytes_in")}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_no_field_of_the_body_says_who_it_is_of(name: str, before: bool) -> None:
    async def main() -> None:
        async with world() as here:
            plain, plainly = await asked(here, body_with())
            for spelling in spellings(name):
                request, call = await asked(here, body_with((spelling, FIELDS[name]), before=before))
                assert told(request) == told(plain), spelling
                assert call.json == plainly.json, spelling
            twice = [(spelling, FIELDS[name]) for spelling in spellings(name)[:3]]
            request, call = await asked(here, body_with(*twice, *twice, before=before))
            assert (told(request), call.json) == (told(plain), plainly.json)

    run(main)


@pytest.mark.parametrize("name", NESTED)
def test_nor_does_one_within_another(name: str) -> None:
    async def main() -> None:
        async with world() as here:
            plain, plainly = await asked(here, body_with())
            for spelling in spellings(name) if name == "extra_body" else [json.dumps(name)]:
                request, call = await asked(here, body_with((spelling, NESTED[name])))
                assert told(request) == told(plain)
                kept = {"chat_template_kwargs": {"enable_thinking": False}} if name != "extra_body" else {}
                assert call.json == plainly.json | kept
                assert MARK.encode() not in call.body

    run(main)


def test_many_strange_fields_and_long_names_are_no_way_past_it() -> None:
    async def main() -> None:
        async with world() as here:
            plain, plainly = await asked(here, body_with())
            request, call = await asked(here, body_with((json.dumps("user" + "-" * 200), MARK)))
            assert (told(request), call.json) == (told(plain), plainly.json)
            client = await here.client()
            for strange in (
                {f"f{n}": 1 for n in range(300)},
                {"chat_template_kwargs": {f"f{n}": 1 for n in range(300)}},
            ):
                answer = await client.ask(post(chat(**strange)))
                assert (answer.status, answer.error["code"]) == (400, "too_many_fields")

    run(main)


URLS = (f"http://{MARK}.example/", f"/{MARK}.png", f" data:{MARK}", f"file:///{MARK}", "")


@pytest.mark.parametrize(
    "part",
    [
        '{"type":"image_url","image_url":{"url":URL}}',
        '{"type":"image_url","image_url":URL}',
        '{"image_url":URL}',
        '{"type":"image_url","image\\u005furl":{"\\u0075rl":URL}}',
        '{"type":"image_url","\\u0069mage_\\u0075\\u0072l":{"url":URL}}',
        '{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AA","url":URL}}',
        '{"type":"image_url","image_url":{"url":URL},"image_url":{"url":"data:image/png;base64,AA"}}',
        '{"type":"audio_url","audio_url":[{"url":URL}]}',
        '{"type":"input_audio","input_audio":{"url":URL,"format":"wav"}}',
        '{"type":"file","file":{"file_url":URL}}',
        '{"type":"image","url":URL}',
    ],
)
def test_no_part_of_a_message_is_fetched_from_elsewhere(part: str) -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            written = json.dumps(chat(messages=[{"role": "user", "content": ["PART"]}]))
            for url in URLS:
                body = written.replace('"PART"', part.replace("URL", json.dumps(url)))
                answer = await client.ask(post(body.encode()))
                assert (answer.status, answer.error["param"]) == (400, "messages")
                assert "send it as a `data:` URL" in answer.error["message"]
                assert MARK.encode() not in answer.body
            assert not here.engine.calls

    run(main)


def test_what_a_request_brings_itself_reaches_the_engine() -> None:
    async def main() -> None:
        async with world() as here:
            content = [
                {"type": "text", "text": "see https://example.org/image_url, and \u00e4 \u0001"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                {"type": "image_url", "image_url": "DATA:image/png;base64,AA=="},
                {"type": "input_audio", "input_audio": {"data": "/9j/AA==", "format": "wav"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "c:a.pdf"}},
            ]
            called = {"name": "fetch", "arguments": '{"url": "https://example.org", "image_url":["x"]}'}
            messages = [
                {"role": "user", "content": content},
                {"role": "assistant", "content": "an image_url", "tool_calls": [{"id": "1", "function": called}]},
            ]
            _, call = await asked(here, json.dumps(chat(messages=messages)).encode())
            assert call.json["messages"] == messages

    run(main)


def test_what_a_template_is_told_is_an_object() -> None:
    async def main() -> None:
        async with world() as here:
            client = await here.client()
            assert (await client.ask(post(chat(chat_template_kwargs=None)))).status == 200
            answer = await client.ask(post(chat(chat_template_kwargs=[1])))
            assert (answer.status, answer.error["param"]) == (400, "chat_template_kwargs")

    run(main)


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_says_who_it_is_of(name: str) -> None:
    async def main() -> None:
        async with world() as here:
            plain, plainly = await asked(here, body_with())
            for spelling in (name, name.upper(), name.title()):
                line = f"{spelling}: {HEADERS[name]}\r\n"
                request, call = await asked(here, body_with(), line + line)
                assert told(request) == told(plain)
                assert (call.path, call.headers, call.body) == (plainly.path, plainly.headers, plainly.body)

    run(main)


def test_all_of_it_at_once() -> None:
    async def main() -> None:
        async with world() as here:
            plain, plainly = await asked(here, body_with())
            # Without the last spelling, since so many fields are refused.
            fields = [(spelling, value) for name, value in FIELDS.items() for spelling in spellings(name)[:-1]]
            lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
            request, call = await asked(here, body_with(*fields, ('"extra_body"', NESTED["extra_body"])), lines)
            assert told(request) == told(plain)
            assert (call.headers, call.json) == (plainly.headers, plainly.json)
            assert MARK.encode() not in call.body

    run(main)


def test_the_address_is_that_of_who_is_connected() -> None:
    """A key that may come from 10.0.0.0/8 alone is of no use here, whatever a header says of where it came from."""

    async def main() -> None:
        away = mint(tenant="support", app="helpdesk", now_ns=0, networks=("10.0.0.0/8",))
        here_too = mint(tenant="support", app="helpdesk", now_ns=0, networks=("10.0.0.0/8", "127.0.0.0/8"))
        identity = Identity([away.key, here_too.key], lambda: 1)
        async with world(identity=identity) as here:
            client = await here.client()
            lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
            refused = await client.ask(get("/v1/models", headers=lines, key=b"Bearer " + away.text.encode()))
            assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
            assert "not allowed from 127.0.0.1" in refused.error["message"]
            assert (await client.ask(get("/v1/models", key=b"Bearer " + here_too.text.encode()))).status == 200

    run(main)
