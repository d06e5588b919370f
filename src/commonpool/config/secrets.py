"""Secrets: the configuration names where one is, `env:NAME` or `file:PATH`, and never holds it."""

from collections.abc import Mapping
from pathlib import Path


class SecretMissingError(Exception):
    """There is no secret where the configuration says: which key, where, and what to do. The secret is not in it."""


def below(folder: Path, place: str | None) -> str | None:
    """Where a secret is, as it is written: `file:` with the whole path, from `folder`."""
    if place is None or not place.startswith("file:"):
        return place
    return f"file:{folder / place.removeprefix('file:')}"


def secret(key: str, where: str, environment: Mapping[str, str]) -> str:
    """What is at `where`, a word of printable ASCII, for the configuration's `key`. SecretMissingError."""
    kind, _, place = where.partition(":")
    if kind == "env":
        if place not in environment:
            raise SecretMissingError(f"{key} is {where}, and the environment variable {place} is not set; set it.")
        text = environment[place]
    else:
        try:
            text = Path(place).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SecretMissingError(f"{key} is {where}, and that file cannot be read: {reason}.") from None
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SecretMissingError(f"{key} is {where}, and what is there is not one word of printable ASCII.")
    return text
