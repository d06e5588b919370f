"""The words of the console, with those of the log-in page and of refusals (`api.languages`)."""

from commonpool.api import languages
from commonpool.api.languages import Words


def load() -> dict[str, Words]:
    """The words of every language."""
    below, own = languages.load("commonpool.api"), languages.load("commonpool.console")
    return {name: Words(name, {**below[name].messages, **words.messages}) for name, words in own.items()}
