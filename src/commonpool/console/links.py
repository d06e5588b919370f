"""Links of a page: which page an address leads to, by the table of pages, and how a link is written. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

from markupsafe import Markup, escape
from starlette.routing import compile_path

T = TypeVar("T")


class Links(Generic[T]):
    """What is at each path, such as `/jobs/{id}`; where two take an address, the first of them is there.

    They are looked up by the first word of the path, since a table has hundreds of links.
    """

    def __init__(self, places: Iterable[tuple[str, T]]) -> None:
        self._places: dict[str, list[tuple[re.Pattern[str], T]]] = {}
        for path, place in places:
            self._places.setdefault(_first(path), []).append((compile_path(path)[0], place))

    def find(self, to: str) -> tuple[T, Mapping[str, str]] | None:
        """What is at an address, and what its path and its query name; None where nothing of these is."""
        path, _, query = to.partition("#")[0].partition("?")
        for pattern, place in self._places.get(_first(path), ()):
            if taken := pattern.match(path):
                return place, {**dict(parse_qsl(query)), **taken.groupdict()}
        return None

    def above(self, path: str) -> str:
        """The nearest address above this one at which there is something: of `/keys/k1/rotate` it is `/keys`."""
        while path.strip("/"):
            path = path.rstrip("/").rpartition("/")[0] or "/"
            if self.find(path) is not None:
                return path
        return "/"


def _first(path: str) -> str:
    return path[1:].partition("/")[0]


def anchor(to: str, words: object, kind: str = "", rel: str = "") -> Markup:
    """A link with these words, or the words alone where it leads nowhere; `kind` is its class."""
    kinds = f' class="{escape(kind)}"' if kind else ""
    rels = f' rel="{escape(rel)}"' if rel else ""
    if to:
        made = f'<a{kinds} href="{escape(to)}"{rels}>{escape(words)}</a>'
    else:
        made = f"<span{kinds}>{escape(words)}</span>" if kind else escape(words)
    return Markup(made)  # noqa: S704 - every part of it is escaped
