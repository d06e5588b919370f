"""What moving work would cost, of everything that runs: what `hints` has to know of it."""

from collections.abc import Container

from commonpool.core import hints
from commonpool.core.hints import Move
from commonpool.core.inventory import Inventory
from commonpool.core.model import Hardware
from commonpool.core.placement import Placement
from commonpool.core.reclaim import CHECKPOINT_NS
from commonpool.core.scaling import START_NS_GUESS
from commonpool.core.state import State


def worthwhile(state: State, savers: Container[str], now: int) -> tuple[hints.Hint, ...]:
    """What could be gained by moving work together, pool by pool, the best first.

    Moving a replica costs the start-up time that was learned. Of the jobs only the `savers` can be moved, which save
    their state when asked to and wait again: it costs as long as they may take for that. The others are left to end,
    and so is what others have started. However many pools there are, no more is tried than in one.
    """
    tries = max(1, hints.TRIED_MAX // max(1, len(state.inventories)))
    found: list[hints.Hint] = []
    for pool, inventory in state.inventories.items():
        movable = _replicas(state, pool, inventory) | _jobs(state, pool, inventory, savers)
        found += hints.hints(inventory, movable, now, tries)
    return tuple(found)


def _replicas(state: State, pool: str, inventory: Inventory) -> dict[str, Move]:
    movable: dict[str, Move] = {}
    for name, deployment in state.policy.deployments.items():
        if deployment.pool != pool or deployment.scaling is None or deployment.attached:
            continue
        asked = inventory.footprint(deployment.hardware or Hardware(milli_gpu=deployment.milli_gpu), {})
        if isinstance(asked, str):
            continue
        site = state.sites[name]
        cost_ns = site.crew.starts.expected or START_NS_GUESS
        for replica_id, running in site.replicas.items():
            placement = inventory.held(replica_id)
            if placement is not None and not running.draining:
                movable[replica_id] = Move(asked, _owner(inventory, replica_id, placement), cost_ns, None, name)
    return movable


def _jobs(state: State, pool: str, inventory: Inventory, savers: Container[str]) -> dict[str, Move]:
    movable: dict[str, Move] = {}
    for job_id, asked in state.devices[pool].footprints.items():
        placement = inventory.held(job_id)
        if placement is not None and job_id in savers:
            movable[job_id] = Move(asked, _owner(inventory, job_id, placement), CHECKPOINT_NS, placement.until)
    return movable


def _owner(inventory: Inventory, holder_id: str, placement: Placement) -> str:
    return inventory.holders(placement.node)[holder_id].owner
