"""What was asked and answered, of tenants that have switched on a log of it; encrypted before it comes here."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

PromptPlace = tuple[int, str]  # of an entry among its tenant's: at_ns, request_id


class PromptLog(msgspec.Struct, frozen=True):
    """A tenant's log: since when it is on, how long its entries are kept, and who has switched it on."""

    tenant: str
    since_ns: int
    keep_ns: int
    switched_by: str


class PromptHead(msgspec.Struct, frozen=True):
    """What can be told of an entry without its key. `at_ns` is when the request arrived, `size` that of what is sealed.

    `status` is what the client got, 499 where it went away.
    """

    tenant: str
    at_ns: int
    request_id: str
    app: str
    model: str
    endpoint: str
    status: int
    size: int = 0


class Spoken(msgspec.Struct, frozen=True):
    """What was asked and answered, before it is sealed. `asked` is the request's body.

    `answered` is what went over the client's connection, head and all. `cut`: there was more of one of them. `gone`:
    the client left before the end. The status in `head` is not known yet.
    """

    head: PromptHead
    asked: bytes
    answered: bytes
    cut: bool
    gone: bool

    @property
    def size(self) -> int:
        """How much memory it takes, about."""
        return len(self.asked) + len(self.answered)


class Listener(Protocol):
    """Who keeps what is asked and answered. Waits for nothing."""

    def hear(self, spoken: Spoken) -> None:
        """Keep it, where there is room."""

    def lose(self, tenant: str, count: int) -> None:
        """There was no room for so many."""


class PromptText(msgspec.Struct, frozen=True):
    """What is sealed of an entry. A streamed answer is as it would be in one piece. `cut`: one of them is not whole."""

    asked: bytes
    answered: bytes
    cut: bool


class SealedPrompt(msgspec.Struct, frozen=True):
    """An entry."""

    head: PromptHead
    sealed: bytes


class PromptStore(Protocol):
    """The part of a store that keeps prompts."""

    def prompt_logs(self) -> tuple[PromptLog, ...]:
        """Those that are on, by tenant."""

    def save_prompt_log(self, log: PromptLog) -> None:
        """Keeps a tenant's log, in the place of the one that it had."""

    def drop_prompt_log(self, tenant: str) -> None:
        """It is off; its entries stay."""

    def add_prompts(self, entries: Sequence[SealedPrompt]) -> None:
        """Keeps entries; one that is there already is ignored."""

    def prompts(self, tenant: str, before: PromptPlace | None, limit: int) -> tuple[PromptHead, ...]:
        """A tenant's entries, the newest first: the first `limit` before one, or of all."""

    def prompt(self, tenant: str, request_id: str) -> SealedPrompt | None:
        """The entry of a tenant's request."""

    def prompt_bytes(self, tenant: str) -> int:
        """How much is kept of a tenant."""

    def delete_prompts(self, tenant: str, request_id: str | None = None) -> int:
        """Deletes a tenant's entries, or that of one request; returns how many there were."""

    def trim_prompts(self, tenant: str, before_ns: int, bytes_max: int) -> int:
        """Deletes what is older, then the oldest until no more than so much is left; returns how many there were."""
