"""What there is to run on: replicas and devices as they come and go, and replicas that follow demand."""

from commonpool.core import admission, replicas
from commonpool.core.devices import Devices
from commonpool.core.dispatch import Turns
from commonpool.core.effects import Effect
from commonpool.core.events import DevicesChanged, NodeLost, NodeSeen, ReplicaLost, ReplicaReady
from commonpool.core.sites import Serving
from commonpool.core.state import State


class Supply:
    """Whatever changes it, who waits for it is looked at again at once."""

    def __init__(self, state: State, turns: Turns) -> None:
        self._state = state
        self._turns = turns

    # -- demand --------------------------------------------------------------------------------------------------------

    def scale(self, now: int, effects: list[Effect]) -> None:
        """Let the replicas of every deployment follow demand; those whose guarantees are being missed come first."""
        sites = [site for site in self._state.sites.values() if site.scaled]
        for missed in (True, False):
            for site in sites:
                if (site.crew.within > 0) is missed:
                    self.follow(site, now, effects)
                    replicas.stop_drained(site, now, effects)

    def follow(self, site: Serving, now: int, effects: list[Effect]) -> None:
        """Let a deployment's replicas follow demand; what they or one that drains had kept goes out."""
        devices = self._state.devices[site.quota.pool]
        kept, takers = devices.kept, len(site.takers)
        replicas.reconcile(self._state, site, now, effects)
        if (devices.kept < kept and devices.line.waiting) or (len(site.takers) < takers and site.line.waiting):
            self._turns.dispatch(site.quota.pool, now, effects)

    # -- replicas ------------------------------------------------------------------------------------------------------

    def replica_ready(self, event: ReplicaReady, now: int, effects: list[Effect]) -> None:
        """It takes requests from now on, and those that it replaces may go."""
        replica = event.replica
        site = self._state.sites.get(replica.model)
        if site is None or replica.id in site.replicas:
            return
        replicas.ready(self._state, site, replica, event.engine, now)
        self._turns.dispatch(site.quota.pool, now, effects)
        self.follow(site, now, effects)

    def replica_draining(self, replica_id: str, now: int, effects: list[Effect]) -> None:
        """It takes nothing new. Whoever waited for it, and not for another one, is looked at again."""
        for site in self._state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = True
                site.count_free_slots()
                self._turns.dispatch(site.quota.pool, now, effects)

    def replica_lost(self, event: ReplicaLost, now: int, effects: list[Effect]) -> None:
        """It is gone, and perhaps with it a deployment or a pool that only it had kept."""
        for site in self._state.sites.values():
            if event.replica_id in site.replicas or event.replica_id in site.crew.starting:
                replicas.lost(self._state, site, event.replica_id, event.reason, now)
                self._turns.dispatch(site.quota.pool, now, effects)
                self.follow(site, now, effects)
        self._state.prune()

    # -- nodes and devices ---------------------------------------------------------------------------------------------

    def devices_changed(self, event: DevicesChanged, now: int, effects: list[Effect]) -> None:
        """A pool whose nodes are not known has so much from now on."""
        quota = self._state.quotas.get(event.pool)
        if quota is None:
            return
        quota.resize(max(0, event.milli_gpu))
        self._state.loans[event.pool].reconfigured(now)
        self._turns.anew(now, effects)

    def nodes_changed(self, event: NodeSeen | NodeLost, now: int, effects: list[Effect]) -> None:
        """Nodes came, went or changed: their pools have what is there now, up to what their policies say."""
        pools = self._state.see(event.node) if isinstance(event, NodeSeen) else self._state.lose(event.name)
        for pool in pools:
            self._resize(pool, now)
            self._state.devices[pool].nowhere.clear()
            self._size_anew(self._state.devices[pool])
        if pools:
            self._turns.anew(now, effects)
            self.scale(now, effects)

    def look_at(self, pool: str, devices: Devices, now: int) -> None:
        """What time changes of devices: maintenance begins and ends, and what ran on a node that is gone ends."""
        devices.nowhere.clear()
        inventory = devices.inventory
        if inventory is not None and devices.away != inventory.away():
            self._resize(pool, now)
            for site in self._state.sites_of[pool]:
                site.line.unpark()

    def _resize(self, pool: str, now: int) -> None:
        """A pool has what its nodes have, and what still runs where none is any more."""
        devices, inventory = self._state.devices[pool], self._state.inventories[pool]
        devices.away = inventory.away()
        self._state.quotas[pool].resize(inventory.capacity + devices.away)
        self._state.loans[pool].reconfigured(now)

    def _size_anew(self, devices: Devices) -> None:
        """Jobs that were taken while their nodes were away are what they are on the nodes that are there."""
        for flow in devices.line.flows.values():
            for entry in tuple(flow.waiting()):
                if entry.id not in devices.footprints:
                    asked = entry.ask
                    admission.judge(self._state, entry)
                    flow.resize(entry, asked)
