"""What a configuration may look like, as data: the one description behind the reader, the schema and the reference."""

from typing import Any

import msgspec

from commonpool.config.kinds import NAME, Leaf


class Field(msgspec.Struct, frozen=True):
    """One key of a record. `help` is one sentence.

    Exactly one of these holds: `required`; `default`, as people write it; `derived`, how the default follows from other
    keys; or none of them, and then leaving the key out means that there is no such thing.
    """

    key: str
    shape: "Shape"
    help: str
    default: str | None = None
    derived: str | None = None
    required: bool = False


class Record(msgspec.Struct, frozen=True):
    """A mapping with known keys."""

    fields: tuple[Field, ...]
    name: str | None = None  # a name of its own in the JSON Schema

    @property
    def by_key(self) -> dict[str, Field]:
        return {field.key: field for field in self.fields}


class Table(msgspec.Struct, frozen=True):
    """A mapping from names to things of one shape, at most `limit`."""

    item: "Shape"
    limit: int
    limit_low: int = 0
    key: Leaf = NAME


class Series(msgspec.Struct, frozen=True):
    """A list of things of one shape, at most `limit`, where `distinct` none of them twice."""

    item: "Shape"
    limit: int
    limit_low: int = 0
    distinct: bool = True


class Either(msgspec.Struct, frozen=True):
    """One value in place of a list or a record."""

    one: Leaf
    other: Series | Record


class Tagged(msgspec.Struct, frozen=True):
    """A record whose keys depend on the word under `tag`."""

    tag: str
    help: str
    cases: dict[str, Record]


Shape = Leaf | Record | Table | Series | Either | Tagged
Values = dict[str, Any]  # what the reader makes of a record or a table: plain dicts, lists and parsed values
