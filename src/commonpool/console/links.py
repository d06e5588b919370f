"""Links of a page: which page an address leads to, by the table of pages, and how a link is written. Pure."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

from markupsafe import Markup
from starlette.routing import compile_path

T = TypeVar("T")


class Links(Generic[T]):
    """What is at each path, such as `/jobs/{id}`; where two take an address, the first of them is there."""

    def __init__(self, places: Iterable[tuple[str, T]]) -> None:
        self._places = [(compile_path(path)[0], place) for path, place in places]

    def find(self, to: str) -> tuple[T, Mapping[str, str]] | None:
        """What is at an address, and what its path and its query name; None where nothing of these is."""
        parts = urlsplit(to)
        for pattern, place in self._places:
            if taken := pattern.match(parts.path):
                return place, {**dict(parse_qsl(parts.query)), **taken.groupdict()}
        return None

    def above(self, path: str) -> str:
        """The nearest address above this one at which there is something: of `/keys/k1/rotate` it is `/keys`."""
        while path.strip("/"):
            path = path.rstrip("/").rpartition("/")[0] or "/"
            if self.find(path) is not None:
                return path
        return "/"


def anchor(to: str, words: object, kind: str = "", rel: str = "") -> Markup:
    """A link with these words, or the words alone where it leads nowhere; `kind` is its class."""
    kinds = Markup(' class="{}"').format(kind) if kind else Markup()
    if not to:
        return Markup("<span{}>{}</span>").format(kinds, words) if kind else Markup("{}").format(words)
    rels = Markup(' rel="{}"').format(rel) if rel else Markup()
    return Markup('<a{} href="{}"{}>{}</a>').format(kinds, to, rels, words)
