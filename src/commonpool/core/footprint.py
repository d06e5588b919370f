"""What work takes of the devices: the one place where requests for GPUs become milli_gpu and memory.

People ask for whole GPUs, for thousandths of one, for memory, or for a MIG profile (`model.Hardware`). It all becomes a
`Footprint`, which quota, placement and the ledger count with; what could never fit becomes a sentence that says why.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from commonpool.core.model import MILLI_PER_GPU, Device, Hardware, Node, Resource, Together

_LISTED_MAX: Final = 8  # names in a sentence


class Footprint(msgspec.Struct, frozen=True):
    """What work takes: `milli_gpu` and `memory_mib` of each of so many `devices`.

    `profile` names a MIG profile whose slices are taken whole; without one no slice is taken. `stated` says that the
    memory was asked for; else it is the same part of a device as `milli_gpu`, and of a device that has less it is less.
    `cpu_milli` and `memory_mib_host` are those of the nodes, in all.
    """

    devices: int
    milli_gpu: int
    memory_mib: int = 0
    stated: bool = False
    profile: str = ""
    together: Together = "node"
    models: tuple[str, ...] = ()
    runtime: str = ""
    cpu_milli: int = 0
    memory_mib_host: int = 0

    def __hash__(self) -> int:
        """By hand: compiled, a struct does not know that it is frozen."""
        return hash(
            (
                self.devices,
                self.milli_gpu,
                self.memory_mib,
                self.profile,
                self.together,
                self.models,
                self.runtime,
                self.cpu_milli,
                self.memory_mib_host,
            )
        )

    @property
    def total_milli_gpu(self) -> int:
        """What its tenant is charged for."""
        return self.devices * self.milli_gpu


def convert(hardware: Hardware, resources: dict[Resource, int], nodes: Iterable[Node], pool: str) -> Footprint | str:
    """The footprint of what is asked for in a pool of these nodes; or a sentence: why it can never fit.

    Without nodes it is converted by count alone. `resources` are those of all the work together: `cpu_milli` and
    `memory_mib` of the hosts, and `gpu_memory_mib`, which its devices share where `hardware` says nothing of memory.
    Unhealthy devices count: they may come back. Of a node that is in several islands the largest counts for `island`.
    """
    wrong = _impossible(hardware)
    if wrong:
        return wrong
    known = list(nodes)
    if known and hardware.runtime:
        having = [node for node in known if hardware.runtime in node.runtimes]
        if not having:
            return _no_runtime(hardware.runtime, known, pool)
        known = having
    each = _memory_mib(hardware, resources)
    if not known:
        asked = _by_count(hardware, each, pool)
    else:
        devices = [device for node in known for device in node.devices]
        fitting = [device for device in devices if not hardware.models or device.model in hardware.models]
        if not fitting:
            return _no_model(hardware, devices, pool)
        asked = _by_devices(hardware, each, fitting, pool)
    if isinstance(asked, str):
        return asked
    made = msgspec.structs.replace(
        asked,
        together=hardware.together,
        models=hardware.models,
        runtime=hardware.runtime,
        cpu_milli=resources.get("cpu_milli", 0),
        memory_mib_host=resources.get("memory_mib", 0),
    )
    return (_too_many(made, known, pool) if known else "") or made


def piece_of(footprint: Footprint) -> Footprint:
    """What it takes of one device, and of nothing else."""
    return msgspec.structs.replace(footprint, devices=1, together="node", runtime="", cpu_milli=0, memory_mib_host=0)


def holds(device: Device, footprint: Footprint) -> bool:
    """Whether a device could ever be one of those that it takes: its kind, its size, its memory."""
    if device.profile != footprint.profile or (footprint.models and device.model not in footprint.models):
        return False
    if footprint.stated and 0 < device.memory_mib < footprint.memory_mib:
        return False
    return bool(footprint.profile) or device.milli_gpu >= footprint.milli_gpu


# -- how it is asked ---------------------------------------------------------------------------------------------------


def _impossible(hardware: Hardware) -> str:
    milli, count = hardware.milli_gpu, hardware.count
    if milli < 0 or hardware.memory_mib < 0 or count < 1:
        return (
            f"{_gpus(milli)} GPUs, {hardware.memory_mib} MiB of GPU memory and a count of {count} are not what work "
            "can take; ask for at least one device and for nothing below 0."
        )
    if hardware.profile and milli:
        return (
            f"It asks for {_gpus(milli)} GPUs and for the MIG profile {hardware.profile}, and a slice is taken whole; "
            "ask for one of the two."
        )
    if milli > MILLI_PER_GPU and milli % MILLI_PER_GPU:
        return (
            f"{_gpus(milli)} GPUs are more than one and not whole; ask for {milli // MILLI_PER_GPU} or "
            f"{milli // MILLI_PER_GPU + 1}, or for a part of one."
        )
    if milli and count > 1:
        return (
            f"count {count} goes with a MIG profile or with GPU memory alone; GPUs ({_gpus(milli)}) are those in all."
        )
    if not milli and not hardware.memory_mib and not hardware.profile:
        return "It asks for no GPU; ask for GPUs, for GPU memory or for a MIG profile."
    return ""


def _count(hardware: Hardware) -> int:
    return max(1, hardware.milli_gpu // MILLI_PER_GPU) if hardware.milli_gpu else hardware.count


def _memory_mib(hardware: Hardware, resources: dict[Resource, int]) -> int:
    """What is asked for on each device."""
    if hardware.memory_mib:
        return hardware.memory_mib
    return -(-resources.get("gpu_memory_mib", 0) // _count(hardware))


# -- what it comes to --------------------------------------------------------------------------------------------------


def _by_count(hardware: Hardware, memory_mib: int, pool: str) -> Footprint | str:
    if hardware.profile or not hardware.milli_gpu:
        what = f"the MIG profile {hardware.profile}" if hardware.profile else f"{memory_mib} MiB of GPU memory"
        return (
            f"It asks for {what}, and what the GPUs of pool {pool} are is not known; declare its nodes, or ask for "
            "GPUs."
        )
    count = _count(hardware)
    return Footprint(count, hardware.milli_gpu // count, memory_mib, stated=memory_mib > 0)


def _by_devices(hardware: Hardware, memory_mib: int, devices: list[Device], pool: str) -> Footprint | str:
    """`devices` are those of the GPU models that will do, at least one."""
    whole = [device for device in devices if not device.profile]
    slices = [device for device in devices if device.profile]
    count = _count(hardware)
    if hardware.profile:
        return _by_profile(hardware.profile, count, memory_mib, slices, pool)
    if not hardware.milli_gpu:
        return _by_memory(count, memory_mib, whole, slices, pool)
    if not whole:
        return (
            f"It asks for {_gpus(hardware.milli_gpu)} GPUs, and pool {pool} has MIG slices only "
            f"({_listed(device.profile for device in slices)}); ask for a profile, or for memory."
        )
    milli = hardware.milli_gpu // count
    known = [device.memory_mib for device in whole if device.memory_mib]
    if not memory_mib:
        return Footprint(count, milli, milli * min(known, default=0) // MILLI_PER_GPU)
    card = _smallest(whole, memory_mib)
    if card is None and known:
        return _no_memory(memory_mib, whole, pool)
    return Footprint(count, milli if card is None else max(milli, _share(memory_mib, card)), memory_mib, stated=True)


def _by_memory(count: int, memory_mib: int, whole: list[Device], slices: list[Device], pool: str) -> Footprint | str:
    card = _smallest(whole, memory_mib)
    if card is not None:
        return Footprint(count, _share(memory_mib, card), memory_mib, stated=True)
    card = _smallest(slices, memory_mib)
    if card is not None:
        return Footprint(count, card.milli_gpu, memory_mib, stated=True, profile=card.profile)
    if all(not device.memory_mib for device in (*whole, *slices)):
        return (
            f"It asks for {memory_mib} MiB of GPU memory, and how much the devices of pool {pool} have is not known; "
            "ask for GPUs."
        )
    return _no_memory(memory_mib, [*whole, *slices], pool)


def _by_profile(profile: str, count: int, memory_mib: int, slices: list[Device], pool: str) -> Footprint | str:
    its = [device for device in slices if device.profile == profile]
    if not its:
        there = _listed(device.profile for device in slices)
        return (
            f"The MIG profile {profile} is not in pool {pool}, which has {there or 'no MIG slices'}; ask for one that "
            "it has, or for GPUs."
        )
    milli = max(device.milli_gpu for device in its)
    if not memory_mib:
        return Footprint(count, milli, min(device.memory_mib for device in its), profile=profile)
    if _smallest(its, memory_mib) is None and any(device.memory_mib for device in its):
        return _no_memory(memory_mib, its, pool)
    return Footprint(count, milli, memory_mib, stated=True, profile=profile)


def _smallest(devices: list[Device], memory_mib: int) -> Device | None:
    """The smallest of those that are known to hold it."""
    fitting = [device for device in devices if device.memory_mib >= memory_mib]
    return min(fitting, key=_size) if fitting else None


def _size(device: Device) -> tuple[int, int, str]:
    return device.memory_mib, device.milli_gpu, device.id


def _share(memory_mib: int, device: Device) -> int:
    """The part of a device that has so much memory is that part of the device, whatever else is asked for."""
    return max(1, -(-memory_mib * MILLI_PER_GPU // device.memory_mib))


# -- why it cannot be --------------------------------------------------------------------------------------------------


def _no_runtime(runtime: str, nodes: list[Node], pool: str) -> str:
    there = _listed(each for node in nodes for each in node.runtimes)
    return (
        f"It asks for the runtime {runtime}, and no node of pool {pool} has it; known: {there or 'none'}. Ask for one "
        "of those, or for none."
    )


def _no_model(hardware: Hardware, devices: list[Device], pool: str) -> str:
    there = _listed(device.model for device in devices)
    return (
        f"It asks for the GPU model {' or '.join(hardware.models)}, and pool {pool} has {there or 'no GPUs'}; ask for "
        "one that it has."
    )


def _no_memory(memory_mib: int, devices: list[Device], pool: str) -> str:
    largest = max(devices, key=_size)
    size = largest.memory_mib
    kind = f"MIG slice ({largest.profile})" if largest.profile else "GPU"
    return (
        f"It needs {memory_mib} MiB on one device, and the largest {kind} of pool {pool} that it could have has {size} "
        f"MiB; {-(-memory_mib // size)} of them do not hold it together: ask for less on each, or a larger device."
    )


def _too_many(footprint: Footprint, nodes: list[Node], pool: str) -> str:
    """More devices than there ever are where they are wanted; "" if not."""
    most = there = 0
    for node in nodes:
        islands: dict[str, int] = {}
        for device in node.devices:
            if holds(device, footprint):
                there += 1
                islands[device.island] = islands.get(device.island, 0) + 1
        linked = [many if island else 1 for island, many in islands.items()]
        most = max(most, sum(islands.values()) if footprint.together == "node" else max(linked, default=0))
    kind = f"{footprint.profile} slices" if footprint.profile else "GPUs"
    if footprint.stated:
        kind += f" with {footprint.memory_mib} MiB"
    if footprint.devices > there:
        return f"It asks for {footprint.devices} {kind}, and pool {pool} has {there}; ask for fewer."
    if footprint.devices > most and footprint.together != "any":
        where = "node" if footprint.together == "node" else "link island"
        return (
            f"It asks for {footprint.devices} {kind} on one {where}, and no {where} of pool {pool} has more than "
            f"{most}; ask for fewer."
        )
    return ""


def _gpus(milli_gpu: int) -> str:
    return f"{milli_gpu / MILLI_PER_GPU:g}"


def _listed(names: Iterable[str]) -> str:
    found = sorted({name for name in names if name})
    more = len(found) - _LISTED_MAX
    return ", ".join(found[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
