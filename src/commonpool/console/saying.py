"""What the API says in English, said in the reader's language: by its name, from the catalogue's `said`.

Where the catalogue has no words for it, the English sentence is shown, marked as English. So is, in the midst of a
sentence, what somebody else has said (`detail`).
"""

import re
from typing import Final

from markupsafe import Markup, escape

from commonpool.api.languages import Words
from commonpool.console import figures
from commonpool.core.said import Said, Value, fill

CLAUSES: Final = "clauses"  # whole parts of a sentence, where others are items of a list


def sentence(words: Words, said: Said | None) -> Markup | None:
    """It in this language, as HTML; None where the catalogue does not have it."""
    try:
        return None if said is None else _said(words, said)
    except KeyError:
        return None


def _said(words: Words, said: Said) -> Markup:
    message = words.messages[f"said.{said.name}"]
    if not isinstance(message, str):
        raise KeyError(said.name)
    filled = fill(_coded(message), said.values, lambda name, value: _shown(words, name, value))
    return Markup(filled)  # noqa: S704 - the message is ours, and every value is escaped


def _shown(words: Words, name: str, value: Value) -> str:  # noqa: PLR0911 - one for each kind of value
    match value:
        case Said():
            return str(_said(words, value))
        case tuple():
            between = words("frame.between_clauses" if name == CLAUSES else "frame.between_items")
            return between.join(str(_said(words, each)) for each in value)
        case str() if name == "detail":
            return str(Markup('<span lang="en">{}</span>').format(value))
        case str():
            return str(escape(value))
        case _ if name.endswith("milli_gpu"):
            return figures.gpus(value)
        case _ if name.endswith("_ns"):
            return str(escape(figures.duration(value)))
        case _ if name.endswith("_tenths"):
            return f"{value / 10:,.1f}"
        case _:
            return figures.count(value)


def _coded(text: str) -> str:
    """Commands between backticks, as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
