"""Light or dark, as the reader's system says or as chosen: one cookie for the console and the log-in page."""

from typing import Final

THEMES: Final = ("auto", "light", "dark")
THEME: Final = "commonpool-theme"  # the cookie


def theme(said: str) -> str:
    """The theme of this name; as the system says where there is none."""
    return said if said in THEMES else THEMES[0]
