"""Pictures, sound and files in messages: only what the request itself brings, as `data:` URLs.

Engines fetch other URLs by themselves, some of them files of their own machine: whoever asked could have an engine
call any address that it reaches. All engines read them under a key that ends in `url` (`image_url`, or `url` in it).
"""

import re
from typing import Final

from commonpool.gateway.errors import ApiError

_SIGNS: Final = (b'url"', b"\\u00")  # as it is, or with letters that JSON escapes
# A quote that stands as it is ends a string, and with a colon behind it that was a key; inside a string it is escaped.
# So the bytes say it, whatever is around: other objects, the same key again.
_VALUE: Final = re.compile(rb'"(?<=(?:url|5rl|72l|06c)")\s*:\s*(?:"(?!data:)|\[)', re.IGNORECASE)
_NAME: Final = re.compile(rb"(?:u|\\u0075)(?:r|\\u0072)(?:l|\\u006[cC])\Z")
_NAME_BYTES: Final = 18  # with all its letters escaped


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
