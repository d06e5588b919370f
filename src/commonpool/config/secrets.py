"""Secrets: the configuration names where one is, `env:NAME` or `file:PATH`, and never holds it.

The master key may also be what a program prints: `command:PROGRAM ARGUMENTS`.
"""

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COMMAND_S: Final = 30.0  # a program that asks a key service answers within that, or it hangs


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
    elif kind == "command":
        text = _printed(key, where, place)
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


def _printed(key: str, where: str, command: str) -> str:
    """What a program prints. What it says of an error is not repeated: it may hold a secret."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program, without a shell
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SecretMissingError(f"{key} is {where}, and that printed nothing within {COMMAND_S:g} s.") from None
    except OSError as error:
        raise SecretMissingError(f"{key} is {where}, and that cannot be run: {error.strerror}.") from None
    if done.returncode:
        raise SecretMissingError(f"{key} is {where}, and that failed with status {done.returncode}; run it yourself.")
    return done.stdout.decode(errors="replace")
