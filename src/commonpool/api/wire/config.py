"""The configuration, what would change in it, and the policies."""

import msgspec

from commonpool.config import Change, Sources


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration's files. `revision` is the one in force that they are, or were made from.

    A change made from a revision that is no longer in force is refused; None does not care.
    """

    sources: Sources
    revision: int | None = None


class Changes(msgspec.Struct, frozen=True):
    """What would change, or has changed. `revision` is the one in force now."""

    revision: int
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()


class PolicyFiles(msgspec.Struct, frozen=True):
    """Policies in Cedar, and the schema that they are checked against, by file; `digest` tells two editions apart."""

    files: dict[str, str]
    digest: str
