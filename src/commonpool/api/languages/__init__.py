"""The languages of pages for people, and which one somebody reads; the words of the log-in page and of refusals.

Words are a folder of TOML files for each language, one file for each page, `page.key` where they are used. A message
may have `{names}`, which are filled in, and may be two: `one` and `other`, chosen by `count`.
"""

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import msgspec
from starlette.responses import Response

LANGUAGES: Final = {"en": "English", "zh": "中文"}
USUAL: Final = "en"
COOKIE: Final = "commonpool-language"
YEAR_S: Final = 365 * 86400


class MissingMessageError(KeyError):
    """A page asks for a message that no file has."""


class Words(msgspec.Struct, frozen=True):
    """The messages of one language by `page.key`."""

    language: str
    messages: Mapping[str, str | Mapping[str, str]]

    def __call__(self, key: str, **values: Any) -> str:
        """A message with its values filled in. Raises MissingMessageError."""
        try:
            message = self.messages[key]
        except KeyError:
            raise MissingMessageError(key) from None
        if not isinstance(message, str):
            message = message["one" if values.get("count") == 1 else "other"]
        return message.format_map(values) if values else message

    def of(self, kind: str, value: str) -> str:
        """What a value of the API is called, such as a state: `kind.value`, else the value itself, readable."""
        message = self.messages.get(f"{kind}.{value}")
        return message if isinstance(message, str) else value.replace("_", " ")

    def has(self, key: str) -> bool:
        return key in self.messages


def load(package: str = "commonpool.api") -> dict[str, Words]:
    """The words of every language that lie in the folder `languages` of a package."""
    return {language: Words(language, _messages(package, language)) for language in LANGUAGES}


def _messages(package: str, language: str) -> dict[str, str | Mapping[str, str]]:
    found: dict[str, str | Mapping[str, str]] = {}
    for file in (resources.files(package) / "languages" / language).iterdir():
        if file.name.endswith(".toml"):
            page = file.name.removesuffix(".toml")
            found |= _flat(page, tomllib.loads(file.read_text("utf-8")))
    return found


def _flat(prefix: str, table: Mapping[str, Any]) -> dict[str, str | Mapping[str, str]]:
    found: dict[str, str | Mapping[str, str]] = {}
    for key, value in table.items():
        name = f"{prefix}.{key}"
        if isinstance(value, str) or value.keys() == {"one", "other"}:
            found[name] = value
        else:
            found |= _flat(name, value)
    return found


def chosen(cookie: str, accept: str) -> str:
    """The language of LANGUAGES that somebody reads: as chosen, else as their browser says."""
    return cookie if cookie in LANGUAGES else preferred(accept)


def keep(response: Response, cookie: str, value: str) -> None:
    """How somebody wants to read is kept in their browser."""
    response.set_cookie(cookie, value, YEAR_S, httponly=True, samesite="strict")


def preferred(accept: str) -> str:
    """The language of LANGUAGES that an Accept-Language header likes best; the usual one where it names none."""
    liked: list[tuple[float, int, str]] = []
    for at, part in enumerate(accept.split(",")[:20]):
        tag, _, quality = part.partition(";")
        language = tag.strip().lower().partition("-")[0]
        if language in LANGUAGES:
            liked.append((-_quality(quality), at, language))
    return min(liked)[2] if liked else USUAL


def _quality(text: str) -> float:
    try:
        return float(text.strip().removeprefix("q=") or 1)
    except ValueError:
        return 0.0
