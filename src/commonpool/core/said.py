"""Sentences for people, by name: what is said, apart from the language it is said in.

A sentence has a `name`, such as `loan.due`, and `values`. `core.english` has its words; the console's catalogue has
those of other languages. The API answers the English sentence, and this beside it.

The name of a value says how it is shown. A whole number is thousandths of a GPU in `milli_gpu`, a length of time in
`..._ns`, tenths in `..._tenths`, else a count. A text is a name, as it is; in `detail` it is a sentence of somebody
else's, such as an engine's. What is itself said is a part of the sentence, and several such are a list.
"""

import string
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sentence, or a part of one: its name, and what its words have in braces."""

    name: str
    values: dict[str, "int | str | Said | tuple[Said, ...]"] = {}


Value = int | str | Said | tuple[Said, ...]
Show = Callable[[str, Value], str]


def say(name: str, /, **values: Value) -> Said:
    return Said(name, values)


def clauses(*parts: Said | None) -> Said:
    """One after the other, divided by commas; those that are None are left out."""
    given = tuple(part for part in parts if part is not None)
    return given[0] if len(given) == 1 else Said("clauses", {"clauses": given})


def names(template: str) -> frozenset[str]:
    """What a template has in braces."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name is not None)


def fill(template: str, values: Mapping[str, Value], show: Show) -> str:
    """The template with every value as `show(name, value)` has it. Raises KeyError for a value that is not given."""
    shown: dict[str, Any] = {name: show(name, values[name]) for name in names(template)}
    return template.format_map(shown)
