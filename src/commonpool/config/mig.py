"""MIG profiles: the slices that a GPU can be cut into, by its kind and memory.

Names and parts are those of NVIDIA's MIG User Guide, "Supported MIG Profiles". The memory of a slice is less than its
name says: here it is the least that `nvidia-smi mig -lgip` shows with one driver or another, so that what fits here
fits there.
"""

import re

import msgspec

from commonpool.core.model import MILLI_PER_GPU

_MIB_PER_GB = 1024  # labels mean GiB, and people write either
_MIB_PER_DECIMAL_GB = 953
_NEAR_PERCENT = 5


class Profile(msgspec.Struct, frozen=True):
    """One kind of slice: its compute and memory slices, and MiB."""

    name: str
    compute: int
    memory: int
    memory_mib: int


class Card(msgspec.Struct, frozen=True):
    """A kind of GPU that can be cut into `compute` and `memory` slices. `gb` is the memory on its label."""

    families: tuple[str, ...]
    gb: int
    compute: int
    memory: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        """Its profile of this name."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def milli_gpu(self, profile: Profile) -> int:
        """Its compute part in thousandths of the card, rounded down."""
        return profile.compute * MILLI_PER_GPU // self.compute

    def distance(self, memory_mib: int) -> int:
        """How far that much memory, MiB, is from its label."""
        return min(abs(memory_mib - self.gb * unit) for unit in (_MIB_PER_GB, _MIB_PER_DECIMAL_GB))


def _sevenths(families: tuple[str, ...], gb: int, sizes: tuple[int, int, int], mib: tuple[int, int, int]) -> Card:
    """A card of seven compute and eight memory slices; `sizes` and `mib` are those of one, two and four memory slices.

    All eight have at least twice what four have.
    """
    shapes = ((1, 0), (1, 1), (2, 1), (3, 2), (4, 2))
    parts = [Profile(f"{compute}g.{sizes[size]}gb", compute, 1 << size, mib[size]) for compute, size in shapes]
    media = Profile(f"{parts[0].name}+me", 1, 1, mib[0])
    return Card(families, gb, 7, 8, (*parts, Profile(f"7g.{gb}gb", 7, 8, 2 * mib[2]), media))


_A30 = (
    Profile("1g.6gb", 1, 1, 5949),
    Profile("2g.12gb", 2, 2, 11970),
    Profile("4g.24gb", 4, 4, 24002),
    Profile("1g.6gb+me", 1, 1, 5949),
    Profile("2g.12gb+me", 2, 2, 11970),
)
CARDS = (
    Card(("A30",), 24, 4, 4, _A30),
    _sevenths(("A100",), 40, (5, 10, 20), (4864, 9856, 19968)),
    _sevenths(("A100",), 80, (10, 20, 40), (9728, 19968, 40192)),
    _sevenths(("H100",), 80, (10, 20, 40), (9728, 19968, 40192)),
    _sevenths(("H100",), 94, (12, 24, 47), (11008, 22136, 47488)),
    _sevenths(("H100", "GH200"), 96, (12, 24, 48), (11008, 22136, 47488)),  # as with 94 GB, which is surely there
    _sevenths(("H200",), 141, (18, 35, 71), (16384, 33024, 71168)),
    _sevenths(("B200",), 180, (23, 45, 90), (20992, 45312, 90624)),
)


def card_of(gpu_model: str, memory_mib: int) -> Card | None:
    """The card that a GPU of this model and memory is; None where it is none that can be cut."""
    words = re.split(r"[^A-Z0-9]+", gpu_model.upper())
    family = [card for card in CARDS if not set(card.families).isdisjoint(words)]
    near = min(family, key=lambda card: card.distance(memory_mib), default=None)
    if near is None or near.distance(memory_mib) * 100 > near.gb * _MIB_PER_GB * _NEAR_PERCENT:
        return None
    return near


def milli_gpu_of(profile: str) -> int | None:
    """What a slice of this name is in thousandths of its card, whichever that is; None where no card has it."""
    return next((card.milli_gpu(found) for card in CARDS if (found := card.profile(profile))), None)
