"""The migrations of a store over SQL: numbered files in SQLite's words, the same for every database."""

import re
from collections.abc import Iterator
from importlib import resources

from commonpool.store.contract import StoreError


def missing_migrations(version: int, where: str) -> Iterator[tuple[int, str]]:
    """Numbers and texts of those after `version`, in order. StoreError where `where` has one that is not known here."""
    known = _migrations()
    if version > max(known):
        raise StoreError(
            f"{where} has schema {version} and this version of commonpool knows {max(known)} at most: "
            "use the version that wrote it, or a newer one."
        )
    return ((number, known[number]) for number in sorted(known) if number > version)


def _migrations() -> dict[int, str]:
    """The SQL of each migration by its number."""
    folder = resources.files("commonpool.store").joinpath("migrations")
    found = ((re.fullmatch(r"(\d{4})_\w+\.sql", file.name), file) for file in folder.iterdir())
    return {int(name[1]): file.read_text(encoding="utf-8") for name, file in found if name}
