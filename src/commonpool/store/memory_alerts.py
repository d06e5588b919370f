"""Alerts in memory: the part of `store.memory` that keeps them."""

from collections.abc import Collection, Iterable

from commonpool.core.telling import Key, Silence
from commonpool.store.alerts import KeptEpisode


class MemoryAlerts:
    """An `alerts.AlertStore` that forgets everything at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._alerts: dict[Key, KeptEpisode] = {}
        self._silences: dict[tuple[str, str], Silence] = {}

    def save_alerts(self, kept: Iterable[KeptEpisode], forgotten: Collection[Key] = ()) -> None:
        """See `AlertStore.save_alerts`."""
        self._alerts.update({each.episode.key: each for each in kept})
        for key in forgotten:
            self._alerts.pop(key, None)

    def alerts(self) -> tuple[KeptEpisode, ...]:
        """See `AlertStore.alerts`."""
        return tuple(each for _, each in sorted(self._alerts.items()))

    def save_silence(self, silence: Silence) -> None:
        """See `AlertStore.save_silence`."""
        self._silences[silence.alert, silence.tenant] = silence

    def silences(self) -> tuple[Silence, ...]:
        """See `AlertStore.silences`."""
        return tuple(each for _, each in sorted(self._silences.items()))

    def drop_silence(self, alert: str, tenant: str) -> None:
        """See `AlertStore.drop_silence`."""
        self._silences.pop((alert, tenant), None)

    def drop_silences(self, until_ns: int) -> None:
        """See `AlertStore.drop_silences`."""
        self._silences = {key: each for key, each in self._silences.items() if each.until_ns > until_ns}
