"""Where work may run: what rules a host out, in the order in which it is looked at, and the words for it.

What is not ruled out is ranked (`core.ranking`). `core.inventory` answers for a whole pool.
"""

from typing import Final

from commonpool.core.candidates import Barrier
from commonpool.core.entries import Spot
from commonpool.core.footprint import Footprint, holds
from commonpool.core.hosts import FREE, Card, Host
from commonpool.core.model import NS_PER_HOUR, Isolation, Window
from commonpool.core.ranking import STRENGTH

# Work whose end is not known does not go to a node whose maintenance starts within this time.
NOTICE_NS: Final = NS_PER_HOUR


class Placement(Spot):
    """Where work runs: `devices` in order, of each its milli_gpu and memory, `node` that of the first.

    `hosts` are all its nodes, with what it takes of each one's CPU (milli) and memory (MiB). `weights` is the model
    that it loads there, "" for none; `until` when it is expected to end, in nanoseconds, None where that is not known.
    """

    __slots__ = ("devices", "hosts", "memory_mib", "milli_gpu", "node", "until", "weights")

    def __init__(
        self,
        hosts: tuple[tuple[str, int, int], ...],
        devices: tuple[str, ...],
        milli_gpu: tuple[int, ...],
        memory_mib: tuple[int, ...],
        until: int | None = None,
        weights: str = "",
    ) -> None:
        self.node = hosts[0][0] if hosts else ""
        self.hosts = hosts
        self.devices = devices
        self.milli_gpu = milli_gpu
        self.memory_mib = memory_mib
        self.until = until
        self.weights = weights


def closed(host: Host, now: int, until: int | None) -> Window | None:
    """The maintenance window that keeps work off a host: work from `now` to `until` would meet it.

    Work without a known end is kept off where a window is on, or starts within an hour: it may have ended by any later
    one, and if not, whoever maintains the node drains it.
    """
    end = now + NOTICE_NS if until is None else max(until, now + 1)
    for window in host.node.windows:
        if window.start_ns < end and now < window.end_ns:
            return window
    return None


def barrier(
    host: Host, footprint: Footprint, owner: str, isolation: Isolation, now: int, until: int | None
) -> tuple[Barrier, str] | None:
    """What rules a host out, and a sentence; None where the work fits."""
    return (
        _unsuitable(host, footprint, isolation)
        or _maintained(host, now, until)
        or _taken(host, footprint, owner, isolation)
    )


def _unsuitable(host: Host, footprint: Footprint, isolation: Isolation) -> tuple[Barrier, str] | None:
    """What rules a host out whenever it is."""
    node = host.node
    if STRENGTH[node.isolation] < STRENGTH[isolation]:
        return Barrier.ISOLATION, f"It isolates tenants by {node.isolation}, and its pool demands {isolation}."
    if footprint.runtime and footprint.runtime not in node.runtimes:
        return Barrier.RUNTIME, f"It does not have the runtime {footprint.runtime}."
    wanted = footprint.devices
    suitable = sum(holds(card.device, footprint) for card in host.cards)
    if suitable < wanted:
        return Barrier.MODEL, f"It has {suitable} devices of the kind that is asked for, and {wanted} are needed."
    healthy = sum(holds(card.device, footprint) and card.device.healthy for card in host.cards)
    if healthy < wanted:
        return Barrier.HEALTH, f"Only {healthy} of its devices are healthy, and {wanted} are needed."
    return None


def _maintained(host: Host, now: int, until: int | None) -> tuple[Barrier, str] | None:
    window = closed(host, now, until)
    if window is None:
        return None
    return Barrier.WINDOW, f"It is maintained from {window.start_ns} to {window.end_ns}, before the work has ended."


def _taken(host: Host, footprint: Footprint, owner: str, isolation: Isolation) -> tuple[Barrier, str] | None:
    """What rules out a host that could take the work if it were empty."""
    if isolation in ("node", "network") and host.owner not in (FREE, owner):
        return Barrier.TENANT, "Another tenant has the node."
    if host.free_cpu < footprint.cpu_milli:
        return Barrier.HOST_CPU, f"{max(0, host.free_cpu)} cpu_milli are free, and {footprint.cpu_milli} are needed."
    if host.free_mib < footprint.memory_mib_host:
        said = f"{max(0, host.free_mib)} MiB of its memory are free, and {footprint.memory_mib_host} are needed."
        return Barrier.HOST_MEMORY, said
    return _short(host, footprint, owner, isolation) if footprint.devices else None


def _short(host: Host, footprint: Footprint, owner: str, isolation: Isolation) -> tuple[Barrier, str] | None:
    """What its cards are short of."""
    wanted = footprint.devices
    cards = [card for card in host.cards if card.device.healthy and holds(card.device, footprint)]
    cards = [card for card in cards if isolation == "shared" or card.owner in (FREE, owner)]
    if len(cards) < wanted:
        return Barrier.TENANT, f"Other tenants have all but {len(cards)} of its devices, and {wanted} are needed."
    most = max(card.free_milli for card in cards)
    cards = [card for card in cards if card.free_milli >= card.milli(footprint)]
    if len(cards) < wanted:
        said = f"{footprint.milli_gpu} milli_gpu are free on {len(cards)} of its devices (at most {max(0, most)})"
        return Barrier.GPU, f"{said}, and {wanted} are needed."
    cards = [card for card in cards if card.fits(footprint)]
    if len(cards) < wanted:
        said = f"{footprint.memory_mib} MiB are free on {len(cards)} of its devices, and {wanted} are needed."
        return Barrier.GPU_MEMORY, said
    if footprint.together == "island" and wanted > 1 and _linked(cards) < wanted:
        return Barrier.ISLAND, f"At most {_linked(cards)} free devices are linked, and {wanted} are needed."
    return None


def _linked(cards: list[Card]) -> int:
    islands: dict[str, int] = {}
    for card in cards:
        if card.device.island:
            islands[card.device.island] = islands.get(card.device.island, 0) + 1
    return max(islands.values(), default=1)
