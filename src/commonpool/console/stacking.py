"""Rows of tables that are cards on a phone: each cell says which column it is of."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup, escape

_CELL: Final = re.compile(r"<(td|th)(?=[\s>])")


def labelled(cells: Markup, columns: Sequence[tuple[str, str]], words: Callable[[str], str]) -> Markup:
    """The cells of a row with the words of their `columns` (key, kind); one without a key has none."""
    left = iter(columns)

    def cell(found: re.Match[str]) -> str:
        key, _ = next(left, ("", ""))
        return f'{found[0]} data-label="{escape(words(key))}"' if key else found[0]

    return Markup(_CELL.sub(cell, cells))  # noqa: S704 - the cells are, and what is added is escaped
