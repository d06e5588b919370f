"""What is kept of alerts, so that a restart tells nobody twice and forgets nothing: episodes, and silences."""

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from commonpool.core.firing import Episode
from commonpool.core.telling import Key, Silence


class KeptEpisode(msgspec.Struct, frozen=True):
    """An episode, and when each channel was told last that it fires; `telling.NEVER` where it is yet to be told."""

    episode: Episode
    told: dict[str, int] = {}


class AlertStore(Protocol):
    """The part of a store that keeps alerts."""

    def save_alerts(self, kept: Iterable[KeptEpisode], forgotten: Collection[Key] = ()) -> None:
        """Keeps these as they are now, and forgets others."""

    def alerts(self) -> tuple[KeptEpisode, ...]:
        """All that is kept, by alert and by when it fired."""

    def save_silence(self, silence: Silence) -> None:
        """Keeps it in place of an earlier one of the same alert and tenant. It survives a power cut."""

    def silences(self) -> tuple[Silence, ...]:
        """All that are kept, by alert and tenant."""

    def drop_silence(self, alert: str, tenant: str) -> None:
        """Forgets that of an alert and tenant, if there is one. It survives a power cut."""

    def drop_silences(self, until_ns: int) -> None:
        """Forgets those that ended by then."""
