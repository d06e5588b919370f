"""Logs: structured lines on stderr, without secrets and without what people wrote.

A line is an event and its facts: `log.info("replica ready", replica="m-0")`. Prompts, answers and credentials have no
place in one: fields that would carry them are withheld, and anything shaped like a key is masked wherever it stands.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Literal, TextIO

import structlog

from commonpool.core.keys import redact

Style = Literal["json", "console"]

WITHHELD_FIELDS = frozenset(
    {
        "authorization",
        "body",
        "content",
        "cookie",
        "input",
        "messages",
        "password",
        "prompt",
        "secret",
        "set-cookie",
        "suffix",
        "text",
        "token",
        "tools",
    }
)
_WITHHELD = "[withheld]"


def configure(style: Style, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Sends all logs of the process, libraries' too, to `stream`, stderr by default.

    json is one object a line, console is lines for people.
    """
    stream = sys.stderr if stream is None else stream
    renderer: structlog.typing.Processor
    if style == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        withhold,
        renderer,
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # below that it writes whole URLs, which may hold secrets
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )


def request_context(request_id: str) -> AbstractContextManager[Any]:
    """Inside, every line of this task carries the request's id."""
    return structlog.contextvars.bound_contextvars(request_id=request_id)


def withhold(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """A structlog processor: no field that carries content or credentials, no key in any text."""
    return {name: _WITHHELD if name.lower() in WITHHELD_FIELDS else _clean(value) for name, value in event.items()}


def _clean(value: Any) -> Any:
    match value:
        case str():
            return redact(value)
        case bytes():
            return redact(value.decode(errors="replace"))
        case Mapping():
            return withhold(None, "", {str(name): inner for name, inner in value.items()})
        case list() | tuple() | set() | frozenset():
            return [_clean(inner) for inner in value]
        case int() | float() | None:
            return value
        case _:
            return redact(str(value))
