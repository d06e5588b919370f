"""An engine's answers on the wire: the usage it reports, what can be told without it, and its errors."""

from typing import Final

import msgspec
from msgspec import Raw

from commonpool.core.model import TokenSource, Usage
from commonpool.gateway.errors import ApiError
from commonpool.gateway.wire import BYTES_PER_TOKEN, TOKENS_MAX

MESSAGE_CHARS_MAX: Final = 2000
_NULL: Final = Raw(b"null")
_TEXT: Final = Raw(b'"text_completion"')


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct):
    choices: list[Raw] | None = None
    usage: _Usage | None = None
    error: Raw = _NULL


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None


class _Choices(msgspec.Struct):
    choices: list[_Choice] = []


class Chunk(msgspec.Struct, frozen=True):
    """What a chunk of a stream says beside text. `has_choices` is false for the chunk that carries usage alone."""

    usage: Usage | None
    has_choices: bool
    failed: bool


_answer = msgspec.json.Decoder(_Answer).decode
_chunk = msgspec.json.Decoder(_Chunk).decode
_choices = msgspec.json.Decoder(_Choices).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def usage_of(body: bytes) -> Usage | None:
    """The usage in a whole answer; None where the engine reported none that makes sense. Zero is a value."""
    try:
        reported = _answer(body).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if reported is None else _usage(reported)


def is_object(body: bytes) -> bool:
    """Whether an answer is a JSON object at all."""
    try:
        _fields(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def chunk_of(payload: bytes) -> Chunk | None:
    """A chunk of a stream, None where it is not one."""
    try:
        chunk = _chunk(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    usage = None if chunk.usage is None else _usage(chunk.usage)
    return Chunk(usage, bool(chunk.choices), chunk.error != _NULL)


def _usage(reported: _Usage) -> Usage | None:
    tokens_in = reported.prompt_tokens
    tokens_out = reported.completion_tokens
    if tokens_in is None or not 0 <= tokens_in <= TOKENS_MAX:
        return None
    if tokens_out is None:
        # Embeddings have no completion; elsewhere the total tells it.
        tokens_out = 0 if reported.total_tokens is None else reported.total_tokens - tokens_in
    if not 0 <= tokens_out <= TOKENS_MAX:
        return None
    details = reported.prompt_tokens_details
    cached = 0 if details is None or details.cached_tokens is None else details.cached_tokens
    return Usage(tokens_in, min(max(cached, 0), tokens_in), tokens_out)


def texts_of(body: bytes) -> list[str]:
    """The text of each choice of a whole answer, in order; empty where it has none."""
    try:
        choices = _choices(body).choices
    except (msgspec.DecodeError, RecursionError):
        return []
    texts = []
    for choice in choices:
        message = choice.message
        spoken = "" if message is None else (message.reasoning_content or "") + (message.content or "")
        texts.append(spoken or choice.text or "")
    return texts


def estimate(tokens_in: int, texts: list[str]) -> Usage:
    """Usage of an answer whose engine reported none: the prompt's estimate, and the output by its length."""
    tokens_out = sum(-(-len(text.encode()) // BYTES_PER_TOKEN) for text in texts)
    return Usage(tokens_in, 0, tokens_out, TokenSource.ESTIMATED)


def without_usage(payload: bytes) -> bytes:
    """A chunk of a stream without its usage."""
    fields = _fields(payload)
    del fields["usage"]
    return _encode(fields)


def usage_chunk(payload: bytes, usage: Usage) -> bytes:
    """`payload`, a chunk with some usage, as one that carries `usage` alone; what else its usage holds stays."""
    fields = _fields(payload)
    counts = _fields(fields["usage"])
    counts["prompt_tokens"] = Raw(b"%d" % usage.tokens_in)
    counts["completion_tokens"] = Raw(b"%d" % usage.tokens_out)
    counts["total_tokens"] = Raw(b"%d" % (usage.tokens_in + usage.tokens_out))
    fields["choices"] = Raw(b"[]")
    fields["usage"] = Raw(_encode(counts))
    return _encode(fields)


def cut_short(payload: bytes, sequences: int, usage: Usage) -> tuple[bytes, bytes]:
    """How a stream ends that was cut at the length it may have: the chunk that says so of each choice, and the one
    with its usage. `payload` is a chunk of the same stream.
    """
    try:
        fields = _fields(payload)
    except (msgspec.DecodeError, RecursionError):
        fields = {}
    piece = b'"text":""' if fields.get("object") == _TEXT else b'"delta":{}'
    choices = (b'{"index":%d,%b,"finish_reason":"length"}' % (index, piece) for index in range(sequences))
    fields["choices"] = Raw(b"[%b]" % b",".join(choices))
    fields.pop("usage", None)
    last = _encode(fields)
    fields["usage"] = Raw(b"{}")
    return last, usage_chunk(_encode(fields), usage)


class _EngineError(msgspec.Struct):
    message: str | None = None
    code: Raw = _NULL
    param: str | None = None


def engine_error(status: int, body: bytes) -> ApiError:
    """The answer to a client whose request the engine refused.

    A 4xx other than those that speak of our own access keeps the engine's sentence; what an engine says when it fails
    itself (paths, hosts, stack traces) is for its operator, not for the client.
    """
    if status in (401, 403, 404, 407) or not 400 <= status < 600:  # noqa: PLR2004
        # A status that speaks of our own access, or that is no error's and might have no body.
        return ApiError(502, "engine_refused", f"The engine refused the gateway's request (HTTP {status}).")
    if status >= 500:  # noqa: PLR2004
        return ApiError(status, "engine_failed", f"The engine failed (HTTP {status}); try again.")
    said = _said(body)
    code = "engine_error"
    if said.code != _NULL:
        code = bytes(said.code).decode(errors="replace").strip('"')
    message = (said.message or f"The engine refused the request (HTTP {status}).")[:MESSAGE_CHARS_MAX]
    return ApiError(status, code[:100], message, param=said.param)


def event_error(payload: bytes) -> ApiError:
    """The answer to a client whose stream the engine ended with an error event."""
    try:
        status = int(bytes(_said(payload).code).strip(b'"'))
    except ValueError:
        status = 0
    if 400 <= status < 500:  # noqa: PLR2004
        return engine_error(status, payload)
    return ApiError(502, "engine_failed", "The engine failed within its answer; try again.")


def _said(body: bytes) -> _EngineError:
    """The error an engine's body speaks of, in any of the shapes in use."""
    try:
        outer = msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        return _EngineError()
    for raw in (outer.get("error"), Raw(body)):
        try:
            said = msgspec.json.decode(raw, type=_EngineError) if raw is not None else None
        except msgspec.DecodeError:
            continue
        if said is not None and said.message is not None:
            return said
    for name in ("error", "detail", "message"):
        try:
            return _EngineError(msgspec.json.decode(outer[name], type=str))
        except (KeyError, msgspec.DecodeError):
            continue
    return _EngineError()
