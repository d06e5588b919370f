"""Pictures, sound and files in messages: only what the request itself brings, as `data:` URLs.

Engines fetch other URLs by themselves, some of them files of their own machine: whoever asked could have an engine
call any address that it reaches. All engines read them under a key that ends in `url` (`image_url`, or `url` in it).
"""

import re
from typing import Final

import msgspec

from commonpool.gateway.errors import ApiError

_SIGNS: Final = (b'url"', b"\\u00")  # as it is, or with letters that JSON escapes
# A quote that stands as it is ends a string, and with a colon behind it that was a key; inside a string it is escaped.
# So the bytes say it, whatever is around: other objects, the same key again.
_VALUE: Final = re.compile(rb'"(?<=(?:url|5rl|72l|06c)")\s*:\s*(?:"(?!data:)|\[)', re.IGNORECASE)
_NAME: Final = re.compile(rb"(?:u|\\u0075)(?:r|\\u0072)(?:l|\\u006[cC])\Z")
_NAME_BYTES: Final = 18  # with all its letters escaped


class _Part(msgspec.Struct):
    type: str = "text"


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None


_messages: Final = msgspec.json.Decoder(list[_Message]).decode


def other_than_text(messages: bytes) -> str | None:
    """The type of the first part of a message that is no text; None: there is none, or what is there is no message."""
    if messages.find(b"[", 1) < 0:
        return None
    try:
        found = _messages(messages)
    except msgspec.DecodeError:
        return None  # that is the engine's to refuse
    parts = (part for message in found if isinstance(message.content, list) for part in message.content)
    return next((part.type for part in parts if part.type != "text"), None)


def check(messages: bytes) -> None:
    """`messages` as they came, valid JSON. Raises ApiError (400) where one of them names a URL that is no data."""
    if messages.find(b"[", 1) < 0:  # parts are a list within that of the messages
        return
    if not any(sign in messages for sign in _SIGNS):
        return
    for value in _VALUE.finditer(messages):
        end = value.start()
        if _NAME.search(messages, max(0, end - _NAME_BYTES), end):
            raise ApiError(
                400,
                "invalid_parameter",
                "`messages` has the URL of a picture, a sound or a file that is elsewhere; send it as a `data:` URL.",
                param="messages",
            )
