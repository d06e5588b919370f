"""What a card can be cut into."""

import pytest

from commonpool.config.mig import CARDS, Card, card_of, milli_gpu_of


@pytest.mark.parametrize(
    ("model", "memory_mib", "gb"),
    [
        # The memory that NVML says of each, or what people write.
        ("NVIDIA A100-SXM4-40GB", 40960, 40),
        ("NVIDIA A100 80GB PCIe", 81920, 80),
        ("a100", 76294, 80),  # 80GB
        ("NVIDIA A30", 24576, 24),
        ("NVIDIA H100 80GB HBM3", 81559, 80),
        ("NVIDIA H100 NVL", 95830, 94),
        ("NVIDIA GH200 480GB", 97871, 96),
        ("NVIDIA H200", 143771, 141),
        ("NVIDIA B200", 183359, 180),
    ],
)
def test_a_card_is_known_by_its_model_and_memory(model: str, memory_mib: int, gb: int) -> None:
    card = card_of(model, memory_mib)
    assert card is not None
    assert card.gb == gb


@pytest.mark.parametrize(
    ("model", "memory_mib"), [("NVIDIA L40S", 46068), ("NVIDIA A100-SXM4-40GB", 61440), ("A1000", 40960), ("", 0)]
)
def test_other_cards_are_not(model: str, memory_mib: int) -> None:
    assert card_of(model, memory_mib) is None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.families[0]}-{card.gb}")
def test_profiles_are_parts_of_their_card(card: Card) -> None:
    whole = max(card.profiles, key=lambda profile: profile.compute)
    assert (whole.compute, whole.memory) == (card.compute, card.memory)
    assert len({profile.name for profile in card.profiles}) == len(card.profiles)
    for profile in card.profiles:
        compute, size = profile.name.removesuffix("+me").removesuffix("gb").split("g.")
        assert profile.compute == int(compute)
        # Never more than its name says, and never more than its part of what the whole card has.
        assert profile.memory_mib <= int(size) * 1024
        assert profile.memory_mib * card.memory <= card.gb * 1024 * profile.memory
        assert card.milli_gpu(profile) == profile.compute * 1000 // card.compute


def test_a_profile_s_compute_part_is_in_its_name() -> None:
    assert [milli_gpu_of(name) for name in ("1g.5gb", "3g.40gb", "2g.12gb", "7g.80gb", "9g.1gb")] == [
        142,
        428,
        500,
        1000,
        None,
    ]
    for card in CARDS:
        for profile in card.profiles:
            assert milli_gpu_of(profile.name) == card.milli_gpu(profile)
