"""What is told of a node that was looked at for some work: its score, or what rules it out."""

import enum
from typing import Final

import msgspec


class Barrier(enum.StrEnum):
    """Why work cannot be on a node now."""

    ISOLATION = "isolation"  # the node cannot keep tenants apart as its pool demands
    RUNTIME = "runtime"  # the node does not have it
    MODEL = "model"  # it has no devices of that kind: GPU model, MIG profile, size
    WINDOW = "window"  # it is maintained, or will be before the work has ended
    HEALTH = "health"  # too many of its devices are not healthy
    TENANT = "tenant"  # another tenant has the node or the device
    HOST_CPU = "host_cpu"
    HOST_MEMORY = "host_memory"
    GPU = "gpu"  # too little is free of too many devices
    GPU_MEMORY = "gpu_memory"
    ISLAND = "island"  # enough is free, but not in one link island


# The later one is looked at, the nearer a host was to being taken.
ORDER: Final = {each: at for at, each in enumerate(Barrier)}


class Candidate(msgspec.Struct, frozen=True):
    """A node that was looked at for some work: the devices that it would take there, or what rules the node out.

    The score, best first: `loaded` (the model's weights were loaded there before), `linked` (all devices are of one
    link island; one device is), `growth` (by how much the fragmentation would grow, in milli_gpu expected to be
    unusable; below zero it shrinks), `free` (milli_gpu free on the node, the fullest first).
    """

    node: str
    devices: tuple[str, ...] = ()
    loaded: bool = False
    linked: bool = True
    growth: int = 0
    free: int = 0
    barrier: Barrier | None = None
    reason: str = ""
