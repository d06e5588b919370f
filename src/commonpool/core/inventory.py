"""The devices of a pool: which there are, who holds what of them, and where more would fit.

What is found is taken as one, or not at all. What is held is kept by holder and device, whether or not the device is
there: a holder gives back what it has once, and its owner says when.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from commonpool.core.candidates import ORDER, Barrier, Candidate
from commonpool.core.footprint import Footprint, convert
from commonpool.core.fragmentation import Measure, Shapes
from commonpool.core.hosts import Card, Host, Part
from commonpool.core.model import Device, Hardware, Isolation, Node, Resource
from commonpool.core.placement import Placement, barrier, closed
from commonpool.core.ranking import NO_FIT, Ask, Index

_KINDS_MAX: Final = 4096
_MODELS_MAX: Final = 64  # whose weights were loaded, remembered of each node
_CONVERTED_MAX: Final = 1024
_MOMENT: Final = "\0"  # no holder is called like this


class Inventory:
    """The nodes of one pool and their holders. milli_gpu and MiB; times in nanoseconds."""

    def __init__(self, pool: str, isolation: Isolation = "shared") -> None:
        self.pool = pool
        self._isolation: Isolation = isolation
        self._hosts: dict[str, Host] = {}
        self._cards: dict[str, tuple[Card, Host]] = {}
        self._timed: dict[str, Host] = {}  # those with maintenance windows
        self._loaded: dict[str, dict[str, Host]] = {}  # by the model whose weights were loaded there
        self._held: dict[str, Placement] = {}
        self._on_device: dict[str, dict[str, Part]] = {}
        self._on_node: dict[str, dict[str, Part]] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._converted: dict[tuple[Hardware, tuple[tuple[Resource, int], ...]], Footprint | str] = {}
        self._shapes = Shapes()
        self._index = Index(Measure([]), isolation)
        self.capacity = 0  # the milli_gpu of the healthy devices
        self.free = 0  # and what is not held of them; below zero where more is held than is there

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether the pool has nodes: else its GPUs are only counted."""
        return bool(self._hosts)

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def isolate(self, isolation: Isolation) -> None:
        """The pool keeps its tenants apart like this from now on; what runs goes on."""
        if isolation != self._isolation:
            self._isolation = isolation
            self._renew()

    def see(self, node: Node) -> None:
        """The node is there and is this from now on. Holders of devices that it does not have any more stay so."""
        old = self._hosts.get(node.name)
        if old is not None:
            if old.node == node:
                return
            self._drop(old)
        cards = tuple(
            Card(device, self._kind(device), self._on_device.setdefault(device.id, {})) for device in node.devices
        )
        host = Host(node, cards, self._on_node.setdefault(node.name, {}))
        self._hosts[node.name] = host
        for card in cards:
            self._cards[card.device.id] = (card, host)
        if old is not None:
            for model in old.models:
                self._load(host, model)
        self.capacity += host.capacity()
        self.free += host.free_milli
        if node.windows:
            self._timed[node.name] = host
        self._converted.clear()
        if len(self._kinds) > _KINDS_MAX or self._index.full:
            self._renew()
        else:
            self._index.update(host)

    def lose(self, name: str) -> None:
        """The node is gone. What is held there stays held until it is given back, or the node comes again."""
        host = self._hosts.get(name)
        if host is not None:
            self._drop(host)

    def away(self) -> int:
        """The milli_gpu that are held on devices that do not count: what runs there goes on, or ends soon."""
        held = 0
        for device, holders in self._on_device.items():
            if holders and (device not in self._cards or not self._cards[device][0].device.healthy):
                held += sum(part.milli_gpu for part in holders.values())
        return held

    def stray(self) -> list[tuple[str, str]]:
        """Who holds something on a node that is not there: holders, each with the node."""
        return [(holder, name) for name, on in self._on_node.items() if name not in self._hosts for holder in on]

    def nodes(self) -> list[Node]:
        """Those that are there, in the order in which they came."""
        return [host.node for host in self._hosts.values()]

    def devices(self) -> list[Device]:
        """All devices of the nodes that are there, healthy or not."""
        return [card.device for host in self._hosts.values() for card in host.cards]

    def node_of(self, device: str) -> str | None:
        """The node that has a device; None where none that is there has it."""
        found = self._cards.get(device)
        return None if found is None else found[1].name

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def footprint(self, hardware: Hardware, resources: dict[Resource, int]) -> Footprint | str:
        """What it comes to here, or a sentence: why it can never fit (`footprint.convert`)."""
        key = (hardware, tuple(sorted(resources.items())))
        found = self._converted.get(key)
        if found is None:
            if len(self._converted) >= _CONVERTED_MAX:
                self._converted.clear()
            found = self._converted[key] = convert(hardware, resources, self.nodes(), self.pool)
        return found

    def asked(self, footprint: Footprint, times: int = 1) -> None:
        """Work of this footprint was asked for: once a job that is submitted, once a replica that is wanted.

        Fragmentation is measured over what is asked for most.
        """
        if self._shapes.asked(footprint, times):
            if self._index.full:
                self._renew()
            else:
                self._index.renew(Measure(self._shapes.weights()))

    # -- who holds what ------------------------------------------------------------------------------------------------

    def take(self, holder_id: str, owner: str, placement: Placement) -> None:
        """It holds this from now on, whatever is free. A holder that has something already is not given more."""
        if holder_id in self._held:
            raise ValueError(f"{holder_id} holds devices of pool {self.pool} already; give them back first.")
        self._held[holder_id] = placement
        until = placement.until
        for device, milli, mib in zip(placement.devices, placement.milli_gpu, placement.memory_mib, strict=True):
            self._on_device.setdefault(device, {})[holder_id] = Part(owner, milli, mib, 0, until)
        for name, cpu, mib in placement.hosts:
            self._on_node.setdefault(name, {})[holder_id] = Part(owner, 0, mib, cpu, until)
            host = self._hosts.get(name)
            if host is not None and placement.weights:
                self._load(host, placement.weights)
        self._count(placement)

    def adopt(
        self,
        holder_id: str,
        owner: str,
        devices: Sequence[str],
        milli_gpu: int,
        memory_mib: int = 0,
        *,
        cpu_milli: int = 0,
        memory_mib_host: int = 0,
        until: int | None = None,
        weights: str = "",
    ) -> Placement:
        """Work that runs already holds so much of each of these devices, whether or not it is free, or even known.

        `cpu_milli` and `memory_mib_host` are those of its first node, all of it.
        """
        names = list(dict.fromkeys(device.rpartition("/")[0] for device in devices))
        hosts = tuple((name, 0 if at else cpu_milli, 0 if at else memory_mib_host) for at, name in enumerate(names))
        several = (milli_gpu,) * len(devices), (memory_mib,) * len(devices)
        placement = Placement(hosts, tuple(devices), *several, until, weights)
        self.take(holder_id, owner, placement)
        return placement

    def give(self, holder_id: str) -> None:
        """It holds nothing any more. A second time does nothing."""
        placement = self._held.pop(holder_id, None)
        if placement is None:
            return
        for device in placement.devices:
            self._on_device[device].pop(holder_id, None)
        for name, _, _ in placement.hosts:
            self._on_node[name].pop(holder_id, None)
        self._count(placement)
        for device in placement.devices:
            if not self._on_device[device] and device not in self._cards:
                del self._on_device[device]
        for name, _, _ in placement.hosts:
            if not self._on_node[name] and name not in self._hosts:
                del self._on_node[name]

    def holders(self, name: str) -> dict[str, Part]:
        """Who holds something of a device, or of a node and its devices."""
        found = self._on_device.get(name)
        if found is None:
            found = self._on_node.get(name, {})
        return dict(found)

    def held(self, holder_id: str) -> Placement | None:
        """What a holder has; None if nothing."""
        return self._held.get(holder_id)

    @property
    def fragmented(self) -> int:
        """The milli_gpu that are free and expected to be of no use to what is asked for."""
        return self._index.fragmented()

    # -- where it would fit --------------------------------------------------------------------------------------------

    def find(
        self, footprint: Footprint, owner: str, now: int, until: int | None = None, weights: str = ""
    ) -> Placement | None:
        """The best place for it now, which `take` takes; None where it fits nowhere.

        `owner` is a tenant, "" for a replica that serves the whole pool; `until` when it is expected to end, None where
        that is not known; `weights` the model that it would load.
        """
        host = self._best(footprint, owner, now, until, weights)
        if host is not None:
            cards = [(card, host) for card in self._index.choose(self._index.ask(footprint, owner), host)]
            return _placement(footprint, cards, until, weights, host.name)
        if footprint.together == "any" and footprint.devices > 1:
            return self._apart(footprint, owner, now, until, weights)
        return None

    def candidates(
        self, footprint: Footprint, owner: str, now: int, until: int | None = None, weights: str = ""
    ) -> list[Candidate]:
        """Every node, best first, those that are ruled out last. Work on several nodes is looked at one by one."""
        if footprint.together == "any" and footprint.devices > 1:
            footprint = _alone(footprint)
        ask = self._index.ask(footprint, owner)
        ranked: list[tuple[int, int, str, Candidate]] = []
        for host in self._hosts.values():
            why = barrier(host, footprint, owner, self._isolation, now, until)
            if why is not None:
                ranked.append((2, 0, host.name, Candidate(host.name, barrier=why[0], reason=why[1])))
                continue
            rank = self._index.rank(ask, host)
            loaded = weights in host.models
            candidate = Candidate(
                host.name,
                tuple(card.device.id for card in self._index.choose(ask, host)),
                loaded=loaded,
                linked=self._index.linked(footprint, rank),
                growth=self._index.growth(footprint, rank),
                free=host.free_milli,
            )
            ranked.append((0 if loaded else 1, rank, host.name, candidate))
        ranked.sort(key=_order)
        return [candidate for _, _, _, candidate in ranked]

    def why_not(self, footprint: Footprint, owner: str, now: int, until: int | None = None) -> str:
        """One sentence: why it fits nowhere now; "" where it fits."""
        if self.find(footprint, owner, now, until) is not None:
            return ""
        counts: dict[Barrier, int] = {}
        nearest: Candidate | None = None
        for candidate in self.candidates(footprint, owner, now, until):
            reason = candidate.barrier
            if reason is not None:
                counts[reason] = counts.get(reason, 0) + 1
                if nearest is None or ORDER[reason] > ORDER[nearest.barrier or reason]:
                    nearest = candidate
        if nearest is None:
            return f"Pool {self.pool} has fewer than {footprint.devices} such devices free."
        parts = ", ".join(f"{many} by {reason}" for reason, many in sorted(counts.items()))
        return f"No node of pool {self.pool} can take it now ({parts}). The nearest is {nearest.node}: {nearest.reason}"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _best(self, footprint: Footprint, owner: str, now: int, until: int | None, weights: str) -> Host | None:
        index = self._index
        ask = index.ask(footprint, owner)
        if weights:
            loaded = self._first(ask, self._loaded.get(weights, {}), now, until)
            if loaded is not None:
                return loaded[1]
        found = index.best(ask)
        if self._timed:
            timed = self._first(ask, self._timed, now, until)
            if timed is not None and (found is None or (timed[0], timed[1].name) < (found[0], found[1].name)):
                found = timed
        return None if found is None else found[1]

    def _first(self, ask: Ask, hosts: dict[str, Host], now: int, until: int | None) -> tuple[int, Host] | None:
        """The best of some hosts, looked at one by one."""
        best: tuple[int, Host] | None = None
        for host in hosts.values():
            if closed(host, now, until) is None:
                rank = self._index.rank(ask, host)
                if rank != NO_FIT and (best is None or (rank, host.name) < (best[0], best[1].name)):
                    best = rank, host
        return best

    def _apart(self, footprint: Footprint, owner: str, now: int, until: int | None, weights: str) -> Placement | None:
        """On several nodes, one device after the other where each fits best; all of them or none."""
        alone = _alone(footprint)
        found: list[tuple[Card, Host]] = []
        for at in range(footprint.devices):
            host = self._best(alone, owner, now, until, weights)
            if host is None:
                break
            card = self._index.choose(self._index.ask(alone, owner), host)[0]
            found.append((card, host))
            # Held for the moment, so that the next one sees what is left.
            holder = f"{_MOMENT}{at}"
            card.holders[holder] = Part(owner, card.milli(alone), card.mib(alone))
            host.holders[holder] = Part(owner, 0, alone.memory_mib_host, alone.cpu_milli)
            self._recount(card, host)
        for at, (card, host) in enumerate(found):
            del card.holders[f"{_MOMENT}{at}"]
            del host.holders[f"{_MOMENT}{at}"]
            self._recount(card, host)
        if len(found) < footprint.devices:
            return None
        return _placement(footprint, found, until, weights)

    def _renew(self) -> None:
        """Start the index anew: what it was made for has changed."""
        self._index = Index(Measure(self._shapes.weights()), self._isolation)
        self._kinds.clear()
        for host in self._hosts.values():
            for card in host.cards:
                card.kind = self._kind(card.device)
                card.cell = None
            self._index.update(host)

    def _kind(self, device: Device) -> int:
        """A number for devices that differ in nothing but their names."""
        key = (
            device.model,
            device.memory_mib,
            device.milli_gpu,
            device.profile,
            device.island,
            device.taken_mib,
            device.healthy,
        )
        return self._kinds.setdefault(key, len(self._kinds))

    def _drop(self, host: Host) -> None:
        self._index.remove(host)
        del self._hosts[host.name]
        self._timed.pop(host.name, None)
        self.capacity -= host.capacity()
        self.free -= host.free_milli
        for model in host.models:
            self._loaded[model].pop(host.name, None)
        for card in host.cards:
            self._cards.pop(card.device.id, None)
            if not card.holders:
                self._on_device.pop(card.device.id, None)
        if not host.holders:
            self._on_node.pop(host.name, None)
        self._converted.clear()

    def _load(self, host: Host, model: str) -> None:
        """The model's weights are on that host now; the oldest of many are forgotten."""
        host.models.pop(model, None)
        host.models[model] = None
        self._loaded.setdefault(model, {})[host.name] = host
        if len(host.models) > _MODELS_MAX:
            oldest = next(iter(host.models))
            del host.models[oldest]
            self._loaded[oldest].pop(host.name, None)

    def _count(self, placement: Placement) -> None:
        """Something was taken or given there."""
        hosts: dict[str, Host] = {}
        for device in placement.devices:
            found = self._cards.get(device)
            if found is not None:
                found[0].count()
                hosts[found[1].name] = found[1]
        for name, _, _ in placement.hosts:
            there = self._hosts.get(name)
            if there is not None:
                hosts[name] = there
        for host in hosts.values():
            self._recount(None, host)

    def _recount(self, card: Card | None, host: Host) -> None:
        if card is not None:
            card.count()
        self.free -= host.free_milli
        host.count()
        self.free += host.free_milli
        self._index.update(host)


def _alone(footprint: Footprint) -> Footprint:
    """One device of many, with its part of the CPU and memory, rounded up."""
    many = footprint.devices
    return msgspec.structs.replace(
        footprint,
        devices=1,
        cpu_milli=-(-footprint.cpu_milli // many),
        memory_mib_host=-(-footprint.memory_mib_host // many),
    )


def _placement(
    footprint: Footprint, found: list[tuple[Card, Host]], until: int | None, weights: str, first: str = ""
) -> Placement:
    """`first` is the node of work that takes no device."""
    on: dict[str, int] = {first: 0} if first else {}
    for _, host in found:
        on[host.name] = on.get(host.name, 0) + 1
    cpu, mib = footprint.cpu_milli, footprint.memory_mib_host
    if len(on) > 1:  # as they were looked for, one by one
        alone = _alone(footprint)
        hosts = tuple((name, many * alone.cpu_milli, many * alone.memory_mib_host) for name, many in on.items())
    else:
        hosts = tuple((name, cpu, mib) for name in on)
    return Placement(
        hosts,
        tuple(card.device.id for card, _ in found),
        tuple(card.milli(footprint) for card, _ in found),
        tuple(card.mib(footprint) for card, _ in found),
        until,
        weights,
    )


def _order(item: tuple[int, int, str, Candidate]) -> tuple[int, int, str]:
    return item[0], item[1], item[2]
