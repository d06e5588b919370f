"""The text of a key: `cp_<id>_<secret><checksum>`, so that typos and leaks are recognised without asking anyone.

The id (10 characters) names the key in lists and logs; the secret (22 characters of base 62, 131 bits) is shown once;
the checksum (6 characters) is the CRC-32 of everything before it, in base 62.
"""

import re
import zlib

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX = "cp_"
ID_LENGTH = 10
SECRET_LENGTH = 22
CHECKSUM_LENGTH = 6
ID = slice(len(PREFIX), len(PREFIX) + ID_LENGTH)
KEY_LENGTH = len(PREFIX) + ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH

_KEY = re.compile(rf"cp_[0-9A-Za-z]{{{ID_LENGTH}}}_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}")
_KEY_SHAPED = re.compile(rf"cp_([0-9A-Za-z]{{{ID_LENGTH}}})_[0-9A-Za-z]{{1,{SECRET_LENGTH + CHECKSUM_LENGTH}}}")


def key_text(key_id: str, secret: str) -> str:
    """The whole key, with its checksum."""
    body = f"{PREFIX}{key_id}_{secret}"
    return body + _checksum(body)


def is_key(text: str) -> bool:
    """Whether this is a key as issued: its shape is right and its checksum fits. Says nothing of its validity."""
    return _KEY.fullmatch(text) is not None and _checksum(text[:-CHECKSUM_LENGTH]) == text[-CHECKSUM_LENGTH:]


def redact(text: str) -> str:
    """`text` with the secret of everything shaped like a key masked; the id stays, since it says which key it was."""
    return _KEY_SHAPED.sub(r"cp_\1_***", text) if PREFIX in text else text


def _checksum(body: str) -> str:
    value = zlib.crc32(body.encode())
    digits = []
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
