"""The presets against the speeds that the makers of the models have published."""

import pytest

from commonpool.core.model import NS_PER_S
from commonpool.simulator.presets import PRESETS

# Qwen2.5 Speed Benchmark: vLLM 0.6.3, A100 80GB, bf16, batch size 1; prompt length, tokens/s.
PUBLISHED = [("7b-a100", 6144, 80.70), ("32b-a100", 30720, 31.82), ("72b-a100", 1, 31.37)]
OUTPUT_TOKENS = 2048


@pytest.mark.parametrize(("name", "prompt", "tokens_per_s"), PUBLISHED)
def test_decoding_is_as_fast_as_published(name: str, prompt: int, tokens_per_s: float) -> None:
    speed = PRESETS[name].speed
    context = prompt + OUTPUT_TOKENS // 2  # on average over the output
    step_ns = speed.step_ns + speed.step_sequence_ns * context // 1024
    assert NS_PER_S / step_ns == pytest.approx(tokens_per_s, rel=0.03)


def test_h100_is_faster_by_its_bandwidth_and_its_arithmetic() -> None:
    for size in ("7b", "32b", "72b"):
        old, new = PRESETS[f"{size}-a100"].speed, PRESETS[f"{size}-h100"].speed
        assert old.step_sequence_ns / new.step_sequence_ns == pytest.approx(3350 / 2039, rel=0.01)
        assert old.prefill_token_ns / new.prefill_token_ns == pytest.approx(989 / 312, rel=0.01)
        assert new.step_ns < old.step_ns


def test_each_holds_a_full_batch_of_four_thousand_tokens() -> None:
    for preset in PRESETS.values():
        assert preset.kv_tokens >= preset.slots * 4096
        assert preset.milli_gpu % 1000 == 0
