"""Logs: what is in a line, and what is in none."""

import asyncio
import io
import json
import logging
from typing import Any

import httpx
import pytest
import structlog

from commonpool.observe import logs
from commonpool.store.keys import mint

KEY = mint(tenant="a", app="chat", now_ns=0)
MASKED = f"cp_{KEY.key.key_id}_***"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_event_and_its_facts(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    structlog.get_logger().info("replica ready", replica="m-0", slots=4, loaded=True, error=None)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "replica ready",
        "level": "info",
        "replica": "m-0",
        "slots": 4,
        "loaded": True,
        "error": None,
    }


def test_libraries_lines_look_the_same(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    logging.getLogger("uvicorn.error").warning("refused %s", KEY.text)
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == (f"refused {MASKED}", "warning")


def test_no_url_of_a_robot_is_written(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)

    async def post() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200))
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post("https://robots.example/send?access_token=t0ken")

    asyncio.run(post())
    assert stream.getvalue() == ""


def test_the_level_holds_for_all(stream: io.StringIO) -> None:
    logs.configure("json", level=logging.WARNING, stream=stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")
    assert stream.getvalue() == ""


def test_a_request_has_its_id_in_every_line(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    log = structlog.get_logger()
    with logs.request_context("r1"):
        log.info("dispatched")
        logging.getLogger("library").info("sent")
    log.info("idle")
    assert [line.get("request_id") for line in lines(stream)] == ["r1", "r1", None]


def fail() -> None:
    raise RuntimeError(KEY.text)


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_key_is_in_a_line_wherever_it_stood(stream: io.StringIO, style: logs.Style) -> None:
    logs.configure(style, stream=stream)
    log = structlog.get_logger()
    log.info("key %s", KEY.text, key=KEY.text, raw=KEY.text.encode(), deep={"list": [KEY.text, (KEY.text,)]}, made=KEY)
    log.warning("headers", headers={"Authorization": f"Bearer {KEY.text}"}, error=ValueError(KEY.text))
    try:
        fail()
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("library").exception("failed too")
    text = stream.getvalue()
    assert KEY.text[14:] not in text
    assert text.count("RuntimeError") >= 2
    assert MASKED in text


def test_what_people_wrote_is_withheld(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    structlog.get_logger().info(
        "bad request",
        body=b"my secret",
        request={"messages": [{"content": "my secret"}], "model": "m"},
        Prompt="my secret",
    )
    (line,) = lines(stream)
    assert "my secret" not in stream.getvalue()
    assert (line["body"], line["Prompt"]) == ("[withheld]", "[withheld]")
    assert line["request"] == {"messages": "[withheld]", "model": "m"}
