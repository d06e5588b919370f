"""Prompt logs of tenants and what is in them."""

import msgspec


class PromptLogOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked and answered from now on is kept for `keep_ns`."""

    keep_ns: int = 30 * 86_400_000_000_000


class PromptLog(msgspec.Struct, frozen=True):
    """A tenant's prompt log. `since_ns`, `keep_ns` and `switched_by` are None where it is off.

    `kept_bytes` is what is kept of it, encrypted; `lost` are the entries since the start that there was no room for.
    """

    tenant: str
    since_ns: int | None
    keep_ns: int | None
    switched_by: str | None
    kept_bytes: int
    lost: int


class PromptEntry(msgspec.Struct, frozen=True):
    """One request of a prompt log; `at_ns` is when it arrived, `status` what the client got, 499 where it left."""

    request_id: str
    at_ns: int
    app: str
    model: str
    endpoint: str
    status: int
    size: int


class PromptEntries(msgspec.Struct, frozen=True):
    """Entries, the newest first. `after` asks for those that follow, None where these are the last."""

    log: PromptLog
    entries: tuple[PromptEntry, ...]
    after: str | None


class Prompt(msgspec.Struct, frozen=True):
    """What was asked and answered. A streamed answer is as it would be in one piece. `cut`: one is not whole."""

    about: PromptEntry
    asked: str
    answered: str
    cut: bool


class Deleted(msgspec.Struct, frozen=True):
    """So many entries were deleted."""

    count: int


class Rotated(msgspec.Struct, frozen=True):
    """So many data keys were wrapped anew by the master key in force."""

    count: int
