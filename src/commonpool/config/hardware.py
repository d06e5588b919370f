"""What replicas take of their pool's devices: what a model does not say follows from its nodes, and all of it fits.

`core.footprint` converts; its sentences are the ones that are reported.
"""

from collections.abc import Iterable

import msgspec

from commonpool.config.machines import Machines
from commonpool.config.mig import milli_gpu_of
from commonpool.config.problems import KeyPath, Report, listed
from commonpool.config.quantities import format_gpu
from commonpool.config.reader import entries
from commonpool.config.shape import Values
from commonpool.core.footprint import Footprint, convert, holds
from commonpool.core.inventory import Inventory
from commonpool.core.model import MILLI_PER_GPU, Device, Hardware, Node

_KEYS = ("gpu", "gpu_memory", "mig")
_HARDWARE = (*_KEYS, "gpu_models", "together", "runtime")


def settle_hardware(values: Values, machines: dict[str, Machines], report: Report) -> None:
    """Fill in what replicas ask for (`hardware`), take (`footprint`), and hold in all (`gpu`)."""
    # Models often ask for the same, and a pool may have thousands of devices to be asked for it.
    converted: dict[tuple[Hardware, str], Footprint | str] = {}
    for path, _, model in entries(values, "models", report):
        if not all(report.is_sound((*path, key)) for key in _HARDWARE) or "pool" not in model:
            continue
        if not any(key in model for key in _KEYS):
            report.fail((*path, "gpu"), "is missing; write the GPUs that a replica holds, or gpu_memory, or mig")
            continue
        pool = model["pool"]
        its, hardware = machines.get(pool, Machines()), _hardware(model)
        if not its.nodes and hardware == Hardware(milli_gpu=hardware.milli_gpu):
            continue
        model["hardware"] = hardware
        if its.known or (its.sound and not its.nodes):
            if (hardware, pool) not in converted:
                converted[hardware, pool] = convert(hardware, {}, its.known, pool)
            _take(model, path, converted[hardware, pool], its, report)
        elif its.sound and "gpu" not in model:
            _expect(model, path, its, report)


def _hardware(model: Values) -> Hardware:
    return Hardware(
        milli_gpu=model.get("gpu", 0),
        memory_mib=model.get("gpu_memory", 0),
        profile=model.get("mig", ""),
        together=model["together"],
        models=tuple(model.get("gpu_models", ())),
        runtime=model.get("runtime", ""),
    )


def _take(model: Values, path: KeyPath, made: Footprint | str, its: Machines, report: Report) -> None:
    if isinstance(made, str):
        runtime = model.get("runtime")
        had = not runtime or any(runtime in node.runtimes for node in its.known)
        at = "runtime" if not had else next(key for key in ("mig", "gpu_memory", "gpu") if key in model)
        report.fail((*path, at), _sentence(made))
    else:
        model["footprint"], model["gpu"] = made, made.total_milli_gpu


def _expect(model: Values, path: KeyPath, its: Machines, report: Report) -> None:
    """What a replica will hold, before the devices are known: a slice says it itself."""
    profile = model.get("mig", "")
    milli = milli_gpu_of(profile)
    if milli is not None:
        model["gpu"] = milli
    elif profile:
        report.fail((*path, "mig"), f"{profile} is a MIG profile of no GPU that is known here", profile)
    else:
        sentence = f"is missing, and what part of a GPU gpu_memory is shows when {its.discovered} is discovered"
        report.fail((*path, "gpu"), f"{sentence}; write what a replica holds")


def _sentence(whole: str) -> str:
    """A sentence of the core as the end of a line that begins with the key."""
    return (whole[0].lower() + whole[1:]).removesuffix(".")


def check_hardware(values: Values, machines: dict[str, Machines], report: Report) -> None:
    """Report attached engines on devices that they cannot have, and replicas that never fit all at once."""
    claims: dict[str, list[tuple[str, int]]] = {}
    for path, name, model in entries(values, "models", report):
        its = machines.get(model.get("pool", ""), Machines())
        engine = model.get("engine", {})
        if engine.get("kind") == "attached" and "urls" in engine:
            _attached(name, model, (*path, "engine", "devices"), its, claims, report)
    for pool, its in machines.items():
        if its.known and report.is_sound(("models",)):
            _at_once(pool, values, its.known, report)


def _attached(
    name: str, model: Values, at: KeyPath, its: Machines, claims: dict[str, list[tuple[str, int]]], report: Report
) -> None:
    engine, pool = model["engine"], model.get("pool", "")
    entered = engine.get("devices")
    if report.is_bad(at) or not its.sound:
        return
    if not its.nodes:
        if entered:
            report.fail(at, f"names devices, and pool {pool} has no nodes; leave it out, or declare them under nodes")
        return
    if entered is None or len(entered) != len(engine["urls"]):
        said = "is missing" if entered is None else f"has {len(entered)} entries"
        report.fail(
            at, f"{said}, and pool {pool} has nodes; write the devices of each of the {len(engine['urls'])} urls"
        )
        return
    devices = {device.id: device for node in its.known for device in node.devices}
    for number, ids in enumerate(entered):
        here = (*at, str(number))
        if ids is None:
            continue
        wrong = _unknown(ids, pool, its, devices) or _unfit(ids, model.get("footprint"), devices)
        if wrong:
            report.fail(here, wrong)
        elif "gpu" in model:
            _claim(f"{name} ({engine['urls'][number]})", ids, model["gpu"] // len(ids), here, claims, devices, report)


def _unknown(ids: tuple[str, ...], pool: str, its: Machines, devices: dict[str, Device]) -> str:
    """Why these devices are not there; "" if they are, or if that is not known."""
    node = ids[0].partition("/")[0]
    if node not in {each.name for each in its.nodes}:
        return f"there is no node {node} in pool {pool}; it has {listed(each.name for each in its.nodes)}"
    missing = [device for device in ids if device not in devices] if its.known else []
    if not missing:
        return ""
    slices = [device for device in devices if device.startswith(f"{missing[0]}.")]
    if slices:
        return f"{missing[0]} is cut into slices; write one of {listed(slices)}"
    return f"there is no device {missing[0]}; {node} has {listed(_of(devices, node)) or 'none'}"


def _of(devices: Iterable[str], node: str) -> list[str]:
    return [device for device in devices if device.startswith(f"{node}/")]


def _unfit(ids: tuple[str, ...], footprint: Footprint | None, devices: dict[str, Device]) -> str:
    """Why a replica of this footprint is not on these devices; "" where it may be."""
    if footprint is None or not devices:
        return ""
    if len(ids) != footprint.devices:
        return f"names {len(ids)} devices, and a replica has {footprint.devices}; correct one of the two"
    unfit = next((device for device in ids if not holds(devices[device], footprint)), None)
    if unfit is not None:
        return f"{unfit} is not a device that the model asks for; name another, or correct what it asks for"
    islands = {devices[device].island for device in ids}
    if footprint.together == "island" and len(ids) > 1 and (len(islands) > 1 or islands == {""}):
        return f"{ids[0]} to {ids[-1]} are not linked with each other, and together is island; name others"
    return ""


def _claim(
    who: str,
    ids: tuple[str, ...],
    milli_gpu: int,
    at: KeyPath,
    claims: dict[str, list[tuple[str, int]]],
    devices: dict[str, Device],
    report: Report,
) -> None:
    for device in ids:
        held = claims.setdefault(device, [])
        held.append((who, milli_gpu))
        there = devices[device].milli_gpu if device in devices else MILLI_PER_GPU
        total = sum(milli for _, milli in held)
        if total > there:
            others = listed(other for other, _ in held)
            sentence = f"{device} is claimed by {others}, in all {format_gpu(total)} of {format_gpu(there)}"
            report.fail(at, f"{sentence}; give each engine devices of its own")
            return


def _at_once(pool: str, values: Values, nodes: tuple[Node, ...], report: Report) -> None:
    """The fewest replicas of all models fit on the nodes together: attached engines where they are, the largest first.

    Windows pass and unhealthy devices come back, so neither counts.
    """
    inventory = Inventory(pool, values["pools"][pool].get("isolation", "shared"))
    for node in nodes:
        devices = tuple(msgspec.structs.replace(device, healthy=True) for device in node.devices)
        inventory.see(msgspec.structs.replace(node, devices=devices, windows=()))
    started = []
    for path, name, model in entries(values, "models", report):
        if model.get("pool") != pool or "footprint" not in model or "replicas" not in model:
            continue
        if "urls" in model["engine"]:
            for number, ids in enumerate(model["engine"].get("devices", [])):
                inventory.adopt(f"{name}-{number}", "", ids, model["gpu"] // len(ids), model["footprint"].memory_mib)
        else:
            started.append((path, name, model))
    started.sort(key=lambda each: (-each[2]["gpu"], -each[2]["footprint"].memory_mib, each[1]))
    for path, name, model in started:
        for number in range(model["replicas"]):
            placement = inventory.find(model["footprint"], "", 0)
            if placement is None:
                shown = str(model["replicas"])
                sentence = f"is {shown}, and beside the other models' pool {pool} has room for {number} of them"
                report.fail((*path, "replicas"), f"{sentence} on its nodes; lower it, or add nodes", shown)
                break
            inventory.take(f"{name}-{number}", "", placement)
