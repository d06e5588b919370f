"""A request's body on the wire: what it asks for, and the body as the engine gets it.

A request's body is decoded once, to its top-level fields, each kept as the bytes it came in. The fields that decide
anything are read with exact types; the rest passes through. The body is always built anew from the fields, so what
an engine reads is what was checked here: a repeated key, in whatever spelling, is there once.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from commonpool.core.model import Endpoint
from commonpool.gateway import media
from commonpool.gateway.errors import ApiError, shown

SEQUENCES_MAX: Final = 128
STRINGS_MAX: Final = 200_000  # each key becomes an object of ours: millions of them would hold up everybody
FIELDS_MAX: Final = 256  # beside the usual ones, at a time
NAME_CHARS_MAX: Final = 100
PROMPTS_MAX: Final = 2048  # as OpenAI's own service
TOKENS_MAX: Final = 2**31 - 1
BYTES_PER_TOKEN: Final = 4

STRIPPED: Final = frozenset(
    {
        # Decided by the credential and the configuration, never by the body.
        "priority", "service_tier", "user", "metadata", "store", "safety_identifier",
        # Doors into the engine: other tenants' cache, slots and requests, other hosts, files, code, other keys.
        "cache_salt", "x_cache_salt", "extra_key", "cache_prompt", "id_slot", "slot_id", "request_id", "rid",
        "data_parallel_rank", "routed_dp_rank", "kv_transfer_params", "vllm_xargs", "session_params", "lora",
        "lora_path", "bootstrap_host", "bootstrap_port", "bootstrap_room", "prompt_embeds", "chat_template",
        "custom_logit_processor", "logits_processors",
        "api_base", "base_url", "api_key", "extra_headers", "callback_url", "webhook_url",
        # Pictures and sound from elsewhere, and how they are fetched and read.
        "mm_processor_kwargs", "media_io_kwargs", "multi_modal_data", "image_data", "video_data", "audio_data",
        # What a client's library unpacks by itself, or a gateway of another kind would.
        "extra_body", "extra_query", "litellm_params", "tenant", "tenant_id", "customer",
        # Engines' own names for fields that are read here under OpenAI's, and what the gateway alone asks of them.
        "n_predict", "n_cmpl", "return_progress",
    }
)  # fmt: skip

# The usual fields, of which no spelling has to be looked at.
_USUAL: Final = frozenset(
    {
        "model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens",
        "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice",
        "parallel_tool_calls", "reasoning_effort", "encoding_format", "dimensions", "best_of", "echo", "suffix",
    }
)  # fmt: skip
_TEMPLATE_FIELD: Final = "chat_template_kwargs"  # its names are variables of the engine's template, and arguments
_MESSAGES: Final = "messages"
PROMPT_FIELD: Final[dict[Endpoint, str]] = {"chat": _MESSAGES, "completions": "prompt", "embeddings": "input"}
_OF_STREAMS: Final = frozenset({"stream", "stream_options"})
_INCLUDE_USAGE: Final = Raw(b'{"include_usage":true}')
_TRUE: Final = Raw(b"true")
_NULL: Final = Raw(b"null")
_NOTHING: Final[Mapping[str, bytes]] = {}
_KINDS: Final = {
    b'"': "a string", b"[": "a list of something else", b"{": "an object", b"t": "true", b"f": "false", b"n": "null"
}  # fmt: skip
_AT_BYTE: Final = re.compile(r" \(byte (\d+)\)$")

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_text = msgspec.json.Decoder(str).decode
_text_or_null = msgspec.json.Decoder(str | None).decode
_flag = msgspec.json.Decoder(bool | None).decode
_whole = msgspec.json.Decoder(int | None).decode
_strings = msgspec.json.Decoder(list[str]).decode
_tokens = msgspec.json.Decoder(list[int]).decode
_token_lists = msgspec.json.Decoder(list[list[int]]).decode
_encode = msgspec.json.Encoder().encode

_T = TypeVar("_T")


class Ask(msgspec.Struct, gc=False):
    """What a body asks for. `fields` are its top-level fields but for the stripped ones, as they came.

    `choices` is how many answers each prompt gets, `sequences` how many the engine works on for all prompts together,
    and `tokens_in` an estimate of those prompts' tokens. `include_usage` is whether the client wants to see the usage
    chunk of its stream; the engine is always asked for one.
    """

    endpoint: Endpoint
    model: str
    fields: dict[str, Raw]
    stream: bool
    include_usage: bool
    service_tier: str | None
    choices: int
    sequences: int
    tokens_in: int
    tokens_out_max: int | None

    def bound(self, tokens: int) -> None:
        """It may have so many tokens of output, of all its answers together, where it does not say itself how many."""
        if self.tokens_out_max is None and self.endpoint != "embeddings":
            self.tokens_out_max = each = max(1, tokens // self.sequences)
            self.fields["max_tokens"] = Raw(b"%d" % each)

    def other_than_text(self) -> str | None:
        """The type of the first part of its messages that is no text, or None."""
        messages = self.fields.get(_MESSAGES)
        return None if messages is None else media.other_than_text(bytes(messages))

    def whole_body(self) -> bytes:
        """The body that asks for the answer in one piece, whatever the client wants."""
        return _encode({name: raw for name, raw in self.fields.items() if name not in _OF_STREAMS})

    def body(self, served_model: str, more: Mapping[str, bytes] = _NOTHING) -> bytes:
        """The body for an engine that knows the model as `served_model`; `more` are fields that the gateway adds, each
        with its value as JSON.
        """
        if served_model != self.model:
            self.fields["model"] = Raw(_encode(served_model))
            self.model = served_model
        return _encode(self.fields | _raw(more) if more else self.fields)

    def parts(self, model: str) -> Iterator[bytes]:
        """What makes it the same request as another one; `model` is the one that it asked for."""
        yield self.endpoint.encode()
        yield model.encode()
        for name, raw in self.fields.items():
            if name != "model":
                yield name.encode()
                yield bytes(raw)

    def streamed_body(
        self, served_model: str, progress_field: str | None, more: Mapping[str, bytes] = _NOTHING
    ) -> bytes:
        """The body that asks for a stream, whatever the client wants: with its usage, and with the events that the
        engine sends while it reads the prompt when `progress_field` is true; `more` as in `body`.
        """
        fields = self.fields | {"model": Raw(_encode(served_model)), "stream": _TRUE} | _raw(more)
        if not self.stream:
            fields["stream_options"] = _INCLUDE_USAGE
        if progress_field is not None:
            fields[progress_field] = _TRUE
        return _encode(fields)


def read(endpoint: Endpoint, body: bytes) -> Ask:
    """What `body` asks of `endpoint`. Raises ApiError (400), naming the parameter or the position."""
    fields = _object(body)
    service_tier = None
    if not _USUAL.issuperset(fields):
        if "service_tier" in fields:
            service_tier = _decoded(fields, "service_tier", _text_or_null, "a tier's name")
        _strip(fields, [name for name in fields if name not in _USUAL])
        if _TEMPLATE_FIELD in fields:
            _strip_template(fields)
    if "model" not in fields:
        raise ApiError(400, "missing_parameter", "`model` is missing; it must be a string.", param="model")
    model = _decoded(fields, "model", _text, "a string")
    sequences, tokens_in = _prompts(endpoint, fields)
    if _MESSAGES in fields:  # engines read them at other endpoints as well
        media.check(bytes(fields[_MESSAGES]))
    if endpoint == "embeddings":
        return Ask(endpoint, model, fields, False, False, service_tier, 1, sequences, tokens_in, None)
    choices = 1
    if "n" in fields or "best_of" in fields:
        choices = _positive(fields, "n", SEQUENCES_MAX) or 1
        sequences *= max(choices, _positive(fields, "best_of", SEQUENCES_MAX) or 1)
    tokens_out_max = _positive(fields, "max_tokens", TOKENS_MAX) if "max_tokens" in fields else None
    if "max_completion_tokens" in fields:
        tokens_out_max = max(tokens_out_max or 0, _positive(fields, "max_completion_tokens", TOKENS_MAX) or 0) or None
    stream = "stream" in fields and bool(_decoded(fields, "stream", _flag, "true or false"))
    include_usage = stream and _force_usage(fields)
    return Ask(
        endpoint, model, fields, stream, include_usage, service_tier, choices, sequences, tokens_in, tokens_out_max
    )


def is_stripped(name: str) -> bool:
    """Whether a field of this name goes to no engine: in any case and with any signs between its letters.

    Nor does one with a name longer than any that an engine knows.
    """
    return name in STRIPPED or len(name) > NAME_CHARS_MAX or _letters(name) in _STRIPPED_LETTERS


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name))).lower()


_STRIPPED_LETTERS: Final = frozenset(map(_letters, STRIPPED))


def _strip(fields: dict[str, Raw], names: Sequence[str]) -> None:
    if len(names) > FIELDS_MAX:
        message = f"The body has {len(names)} fields that no engine knows; send at most {FIELDS_MAX} of them."
        raise ApiError(400, "too_many_fields", message)
    for name in names:
        if is_stripped(name):
            del fields[name]


def _strip_template(fields: dict[str, Raw]) -> None:
    """What stands there goes to the engine's template by name, beside what the gateway has read."""
    raw = fields[_TEMPLATE_FIELD]
    if bytes(raw) == b"null":
        return
    try:
        inner = _fields(raw)
    except msgspec.DecodeError:
        raise _wrong(_TEMPLATE_FIELD, "an object", raw) from None
    _strip(inner, tuple(inner))
    fields[_TEMPLATE_FIELD] = Raw(_encode(inner))


def _raw(fields: Mapping[str, bytes]) -> dict[str, Raw]:
    return {name: Raw(value) for name, value in fields.items()}


def _object(body: bytes) -> dict[str, Raw]:
    """The top-level fields; what is wrong with the JSON is told with its line, column and byte."""
    if len(body) > STRINGS_MAX and body.count(b'"') - body.count(b'\\"') > 2 * STRINGS_MAX:
        message = f"The body holds more than {STRINGS_MAX} strings and keys, which no request needs; send less at once."
        raise ApiError(400, "too_many_strings", message)
    try:
        if not body.isascii():
            body.decode()
        return _fields(body)
    except UnicodeDecodeError as error:
        raise _malformed(body, "it is not UTF-8", error.start) from None
    except RecursionError:
        raise ApiError(400, "too_deep", "The JSON of the body is nested too deeply; 100 levels always pass.") from None
    except msgspec.ValidationError:
        raise ApiError(400, "not_an_object", "The body must be a JSON object, in braces.") from None
    except msgspec.DecodeError as error:
        if not body.strip():
            raise ApiError(400, "empty_body", "The body is empty; a JSON object is needed.") from None
        reason = str(error)
        found = _AT_BYTE.search(reason)
        if found is None:
            raise _malformed(body, "it ends too early", len(body)) from None
        reason = reason[: found.start()].removeprefix("JSON is malformed: ")
        # What trails is found one byte late.
        raise _malformed(body, reason, int(found[1]) - (reason == "trailing characters")) from None


def _malformed(body: bytes, reason: str, at: int) -> ApiError:
    line = body.count(b"\n", 0, at) + 1
    column = at - body.rfind(b"\n", 0, at)
    return ApiError(
        400,
        "malformed_json",
        f"The JSON of the body is malformed at line {line}, column {column} (byte {at}): {reason}.",
    )


def _prompts(endpoint: Endpoint, fields: dict[str, Raw]) -> tuple[int, int]:
    """How many sequences the prompts make, and about how many tokens they are together."""
    name = PROMPT_FIELD[endpoint]
    raw = fields.get(name)
    if raw is None:
        wanted = "a list of messages" if endpoint == "chat" else "a string, a list of strings, or token numbers"
        raise ApiError(400, "missing_parameter", f"`{name}` is missing; it must be {wanted}.", param=name)
    text = bytes(raw)
    if endpoint == "chat":
        if text[:1] != b"[":
            raise _wrong_prompt(name, "a list of messages", text)
        return 1, -(-len(text) // BYTES_PER_TOKEN)
    if text[:1] == b'"':
        return 1, -(-len(text) // BYTES_PER_TOKEN)
    return _prompt_list(name, raw, text)


def _prompt_list(name: str, raw: Raw, text: bytes) -> tuple[int, int]:
    wanted = "a string, a list of strings, a list of token numbers, or a list of such lists"
    if text[:1] != b"[":
        raise _wrong_prompt(name, wanted, text)
    try:
        match text[1:].lstrip()[:1]:
            case b"]":
                raise ApiError(400, "invalid_parameter", f"`{name}` must not be an empty list.", param=name)
            case b'"':
                count = len(_strings(raw))
                if count > PROMPTS_MAX:
                    raise _too_many(name)
                return count, -(-len(text) // BYTES_PER_TOKEN)
            case b"[":
                if text.count(b"[") > PROMPTS_MAX + 1:  # before it is decoded: millions of lists take seconds
                    raise _too_many(name)
                lists = _token_lists(raw)
                return len(lists), sum(map(len, lists))
            case _:
                return 1, len(_tokens(raw))
    except msgspec.DecodeError:
        raise _wrong_prompt(name, wanted, text) from None


def _too_many(name: str) -> ApiError:
    return ApiError(
        400,
        "invalid_parameter",
        f"`{name}` has more than {PROMPTS_MAX} entries; send them in several requests.",
        param=name,
    )


def _force_usage(fields: dict[str, Raw]) -> bool:
    """Have the engine report its usage in the stream; whether the client asked for that itself."""
    raw = fields.get("stream_options")
    if raw is None or bytes(raw) == b"null":
        fields["stream_options"] = _INCLUDE_USAGE
        return False
    try:
        options = _fields(raw)
    except msgspec.DecodeError:
        raise _wrong("stream_options", "an object", raw) from None
    asked = "include_usage" in options and bool(_decoded(options, "include_usage", _flag, "true or false"))
    options["include_usage"] = _TRUE
    fields["stream_options"] = Raw(_encode(options))
    return asked


def _decoded(fields: dict[str, Raw], name: str, decode: Callable[[Raw], _T], wanted: str) -> _T:
    """A field's value; `decode` lets null pass where the API does."""
    raw = fields[name]
    try:
        return decode(raw)
    except msgspec.DecodeError:
        raise _wrong(name, wanted, raw) from None


def _positive(fields: dict[str, Raw], name: str, limit: int) -> int | None:
    """A whole number from 1 to `limit`; None where it is absent or null."""
    raw = fields.get(name, _NULL)
    try:
        value = _whole(raw)
    except msgspec.DecodeError:
        value = 0
    if value is not None and not 1 <= value <= limit:
        raise _wrong(name, f"a whole number from 1 to {limit}", raw)
    return value


def _wrong(name: str, wanted: str, raw: Raw) -> ApiError:
    value = shown(bytes(raw).decode(errors="replace"))
    return ApiError(400, "invalid_parameter", f"`{name}` must be {wanted}, not {value}.", param=name)


def _wrong_prompt(name: str, wanted: str, text: bytes) -> ApiError:
    """As _wrong, but what was asked is not repeated: errors end up where prompts must not be."""
    given = _KINDS.get(text[:1], "a number")
    return ApiError(400, "invalid_parameter", f"`{name}` must be {wanted}, not {given}.", param=name)
