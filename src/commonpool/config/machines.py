"""The nodes of the pools: what each says by itself, what a pool has because of them, and whose work they can take.

What is discovered, and what is wrong, is not known here: of a pool with such a node nothing is judged by its devices.
"""

from collections.abc import Iterator

import msgspec

from commonpool.config.mig import CARDS, card_of
from commonpool.config.nodes import declared, milli_gpu
from commonpool.config.problems import KeyPath, Report, listed, quote
from commonpool.config.quantities import format_gpu, format_memory
from commonpool.config.reader import entries
from commonpool.config.shape import Values
from commonpool.config.structs import NodeConfig
from commonpool.core.model import Isolation, Node, Window
from commonpool.core.ranking import STRENGTH

_BY_RULE: dict[str, Isolation] = {"elastic": "shared", "guaranteed": "guaranteed", "dedicated": "node"}


class Machines(msgspec.Struct, frozen=True):
    """The nodes of one pool. `discovered` is one whose devices are found out later; `sound` says that none is wrong.

    `known` are the nodes as the core sees them, where all is known of all of them; else there are none.
    """

    nodes: tuple[NodeConfig, ...] = ()
    discovered: str | None = None
    sound: bool = True
    known: tuple[Node, ...] = ()

    @property
    def milli_gpu(self) -> int:
        """What their devices come to."""
        return sum(map(milli_gpu, self.nodes))


def machines_of(values: Values, report: Report) -> dict[str, Machines]:
    """The nodes of each pool that has some."""
    wrong = {name for _, name, node in _all(values, report) if not _is_sound(name, node, report)}
    pools: dict[str, list[NodeConfig]] = {}
    for _, name, node in _all(values, report):
        if name not in wrong:
            pools.setdefault(node["pool"], []).append(node_config(name, node))
    # A node that is wrong may be any pool's.
    return {
        name: _machines(pools.get(name, []), sound=not wrong)
        for name in values.get("pools", {})
        if wrong or name in pools
    }


def _machines(nodes: list[NodeConfig], *, sound: bool) -> Machines:
    discovered = next((node.name for node in nodes if node.discover), None)
    known = tuple(map(declared, nodes)) if sound and discovered is None else ()
    return Machines(tuple(nodes), discovered, sound, known)


def node_config(name: str, node: Values) -> NodeConfig:
    """A node's own values as a struct."""
    links = node.get("links")
    return NodeConfig(
        name=name,
        pool=node["pool"],
        gpus=node.get("gpus"),
        gpu_model=node.get("gpu_model"),
        gpu_memory_mib=node.get("gpu_memory"),
        links=links if links is None else tuple(map(tuple, links)),
        mig={index: tuple(profiles) for index, profiles in node["mig"].items()} if "mig" in node else None,
        cpu_milli=node.get("cpus"),
        memory_mib=node.get("memory"),
        isolation=node["isolation"],
        runtimes=tuple(node["runtimes"]) if "runtimes" in node else None,
        driver=node.get("driver"),
        windows=tuple(Window(window["from"], window["until"]) for window in node.get("maintenance", [])),
        unhealthy=tuple(node.get("unhealthy", [])),
        discover=node["discover"],
        network=node.get("network"),
    )


def settle_nodes(values: Values, report: Report) -> None:
    """Complete each node by itself, and report what it contradicts."""
    for path, _, node in _all(values, report):
        if "gpus" not in node and not node.get("discover") and not report.is_bad((*path, "gpus")):
            report.fail((*path, "gpus"), "is missing; write how many GPUs it has, or discover: true where it is")
        _indexes(node, path, report)
        _links(node, path, report)
        _mig(node, path, report)
        for number, window in enumerate(node.get("maintenance", [])):
            if window is not None and window.get("until", window.get("from", 0) + 1) <= window.get("from", 0):
                at = (*path, "maintenance", str(number))
                report.fail((*at, "until"), "is not after from, so the window ends before it begins; swap the two")


def settle_pools(values: Values, report: Report) -> None:
    """Complete each pool by its nodes, and report where the two disagree."""
    machines = machines_of(values, report)
    for path, name, pool in entries(values, "pools", report):
        its = machines.get(name, Machines())
        _gpus(pool, path, its, report)
        _isolation(pool, path, its, report)


def _all(values: Values, report: Report) -> Iterator[tuple[KeyPath, str, Values]]:
    return entries(values, "nodes", report)


def _is_sound(name: str, node: Values, report: Report) -> bool:
    return "pool" in node and report.is_sound(("nodes", name))


def _indexes(node: Values, path: KeyPath, report: Report) -> None:
    """Every GPU that is named is there."""
    named = [((*path, "unhealthy", str(number)), index) for number, index in enumerate(node.get("unhealthy", []))]
    named += [((*path, "mig", str(index)), index) for index in node.get("mig", {})]
    if node.get("links") != "all":
        for number, linked in enumerate(node.get("links", [])):
            at = (*path, "links", str(number))
            named += [((*at, str(place)), index) for place, index in enumerate(linked or [])]
    for at, index in named:
        if index is not None and index >= node.get("gpus", index + 1):
            there = f"0 to {node['gpus'] - 1}" if node["gpus"] else "none"
            report.fail(at, f"there is no GPU {index}; the node has {there}", str(index))


def _links(node: Values, path: KeyPath, report: Report) -> None:
    """A GPU is linked once, and whole. `all` is written out."""
    at = (*path, "links")
    cut = set(node.get("mig", {}))
    if node.get("links") == "all":
        if "gpus" in node:
            linked = [index for index in range(node["gpus"]) if index not in cut]
            node["links"] = [linked] if len(linked) > 1 else []
        elif not report.is_bad((*path, "gpus")):
            report.fail(at, "is all, and gpus does not say how many that are; write gpus, or leave links out", "all")
        return
    seen: set[int] = set()
    for number, group in enumerate(node.get("links", [])):
        for place, index in enumerate(group or []):
            here = (*at, str(number), str(place))
            if index in seen:
                report.fail(here, f"GPU {index} is in two lists; those that are linked are in one", str(index))
            elif index in cut:
                report.fail(here, f"GPU {index} is cut into slices, which have no links; take it out", str(index))
            seen.add(index)


def _mig(node: Values, path: KeyPath, report: Report) -> None:
    """Slices are of a kind that the card has, and fit on it together."""
    cut, at = node.get("mig"), (*path, "mig")
    if not cut or not all(report.is_sound((*path, key)) for key in ("mig", "gpu_model", "gpu_memory")):
        return
    if "gpu_model" not in node or "gpu_memory" not in node:
        report.fail(at, "needs gpu_model and gpu_memory, since profiles depend on them; write both")
        return
    kind = card_of(node["gpu_model"], node["gpu_memory"])
    if kind is None:
        shown = f"{node['gpu_model']} with {format_memory(node['gpu_memory'])}"
        known = listed(f"{each.families[-1]} {each.gb}GB" for each in CARDS)
        report.fail(at, f"{shown} is no GPU whose profiles are known; known: {known}", node["gpu_model"])
        return
    for index, profiles in cut.items():
        found = [kind.profile(profile) for profile in profiles]
        here = (*at, str(index))
        for number, (profile, name) in enumerate(zip(found, profiles, strict=True)):
            if profile is None:
                names = listed(each.name for each in kind.profiles)
                report.fail((*here, str(number)), f"there is no MIG profile {quote(name)} on this GPU; it has {names}")
        slices = [profile for profile in found if profile is not None]
        compute, memory = sum(each.compute for each in slices), sum(each.memory for each in slices)
        if compute > kind.compute:
            report.fail(here, f"asks for {compute} compute slices, and the GPU has {kind.compute}; take some out")
        elif memory > kind.memory:
            report.fail(here, f"asks for {memory} memory slices, and the GPU has {kind.memory}; take some out")
        elif sum(each.name.endswith("+me") for each in slices) > 1:
            report.fail(here, "asks for media engines (+me) twice, and the GPU has them once; take one out")


def _gpus(pool: Values, path: KeyPath, its: Machines, report: Report) -> None:
    at = (*path, "gpus")
    if report.is_bad(at) or not its.sound:
        return
    shown = format_gpu(its.milli_gpu)
    if "gpus" in pool:
        if its.nodes and its.discovered is None and pool["gpus"] != its.milli_gpu:
            given = format_gpu(pool["gpus"])
            report.fail(at, f"is {given}, but its nodes have {shown}; leave gpus out, or correct the nodes", given)
    elif its.discovered is not None:
        report.fail(at, f"is missing, and what node {its.discovered} has is not known yet; write how many are planned")
    elif its.milli_gpu:
        pool["gpus"] = its.milli_gpu
    elif its.nodes:
        report.fail(at, "is missing, and its nodes have no GPU; a pool has some")
    else:
        report.fail(at, "is missing, and the pool has no nodes; write how many GPUs it has, or declare its nodes")


def _isolation(pool: Values, path: KeyPath, its: Machines, report: Report) -> None:
    """What a pool promises is kept by placing work on its nodes, each of which can give it."""
    at = (*path, "isolation")
    if report.is_bad(at) or "rule" not in pool:
        return
    asked = "isolation" in pool
    level = pool.setdefault("isolation", _BY_RULE[pool["rule"]])
    if asked and level != "shared" and not its.nodes and its.sound:
        report.fail(at, f"is {level}, which is kept by choosing nodes, and none is known; declare its nodes", level)
    for node in its.nodes:
        if STRENGTH[node.isolation] < STRENGTH[level]:
            sentence = f"is {node.isolation}, and pool {path[1]} demands {level}, so nothing could run there"
            where = ("nodes", node.name, "isolation")
            report.fail(where, f"{sentence}; raise it, or put the node into another pool", node.isolation)
