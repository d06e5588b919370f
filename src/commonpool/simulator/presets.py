"""Replicas of models of 7B, 32B and 72B parameters on A100 and H100: shape and speed, for simulations.

Nothing here was measured by this project. Each figure is either published or worked out from published ones, as stated
beside it; what is an assumption says so. The models are the Qwen2.5 family in bf16, because its makers publish decode
speeds of all three sizes on A100 80GB with vLLM 0.6.3 ("Qwen2.5 Speed Benchmark" in their documentation, batch size 1),
against which the decode steps are calibrated: 80.7 tokens/s for 7B on one GPU after a prompt of 6,144 tokens, 31.8 for
32B on two after 30,720, 31.4 for 72B on four after one. The test of this module holds the presets to these.
"""

from typing import Final

import msgspec

from commonpool.core.model import NS_PER_S
from commonpool.simulator.cluster import Speed


class Preset(msgspec.Struct, frozen=True):
    """The shape and speed of one replica. `context_tokens` bounds prompt plus output of one sequence."""

    name: str
    milli_gpu: int
    slots: int
    kv_tokens: int
    context_tokens: int
    speed: Speed


class _Gpu(msgspec.Struct, frozen=True):
    name: str
    memory_mb: int
    mb_per_s: int  # memory bandwidth
    gflops: int  # dense bf16


class _Model(msgspec.Struct, frozen=True):
    name: str
    mega_parameters: int
    layers: int
    kv_bytes: int  # per token: 2 (key, value) × layers × KV heads × 128 (head size) × 2 bytes
    gpus: int


# NVIDIA's data sheets of the A100 80GB SXM (2,039 GB/s, 312 TFLOPS) and the H100 SXM (3.35 TB/s, 989 TFLOPS).
_GPUS: Final = (
    _Gpu("a100", 80_000, 2_039_000, 312_000),
    _Gpu("h100", 80_000, 3_350_000, 989_000),
)
# Parameters, layers and KV heads (4, 8, 8) from the model cards. GPUs: the fewest powers of two that leave room for
# the KV cache of a full batch.
_MODELS: Final = (
    _Model("7b", 7_610, 28, 57_344, 1),
    _Model("32b", 32_500, 64, 262_144, 2),
    _Model("72b", 72_700, 80, 327_680, 4),
)
_BYTES_PER_PARAMETER: Final = 2

# Part of the memory bandwidth that decoding reaches. Calibrated: with it the three published speeds above are met.
_BANDWIDTH_PERCENT: Final = 63
# One all-reduce between GPUs, two in each layer. Calibrated likewise, on the models that need several.
_ALL_REDUCE_NS: Final = 22_000
# Part of the peak FLOPS that reading prompts reaches. An assumption: large matrix products reach a half to two thirds.
_FLOPS_PERCENT: Final = 50
# What a sequence's attention reads at each step is its KV cache; this is the nominal length it is counted with.
_NOMINAL_CONTEXT_TOKENS: Final = 1024
# vLLM's default gpu_memory_utilization, and an assumed 2 GB a GPU for activations and captured graphs.
_MEMORY_PERCENT: Final = 90
_OTHER_MB: Final = 2_000
# Below the batch at which arithmetic takes as long as reading the weights (about 120 on A100, 230 on H100 by the
# figures above), so that a step's time grows with the KV caches alone.
_SLOTS: Final = 64
_CONTEXT_TOKENS: Final = 32_768
# Reading weights: 1.1 GB/s by one process, 4.3 GB/s by eight (safetensors, 57.4 s and 160 s; vLLM's documentation of
# InstantTensor), hence a little over 0.5 GB/s a GPU in a set.
_LOAD_MB_PER_S: Final = 1_100
_LOAD_MB_PER_S_PER_GPU: Final = 540
# Process start, compilation and graph capture: an assumption.
_START_NS: Final = 45 * NS_PER_S


def _preset(model: _Model, gpu: _Gpu) -> Preset:
    weights_mb = model.mega_parameters * _BYTES_PER_PARAMETER
    mb_per_s = model.gpus * gpu.mb_per_s * _BANDWIDTH_PERCENT // 100
    flops = model.gpus * gpu.gflops * 10**9 * _FLOPS_PERCENT // 100
    kv_mb = model.gpus * (gpu.memory_mb * _MEMORY_PERCENT // 100 - _OTHER_MB) - weights_mb
    all_reduce_ns = 2 * model.layers * _ALL_REDUCE_NS if model.gpus > 1 else 0
    load_mb_per_s = max(_LOAD_MB_PER_S, _LOAD_MB_PER_S_PER_GPU * model.gpus)
    return Preset(
        name=f"{model.name}-{gpu.name}",
        milli_gpu=1000 * model.gpus,
        slots=_SLOTS,
        kv_tokens=kv_mb * 10**6 // model.kv_bytes,
        context_tokens=_CONTEXT_TOKENS,
        speed=Speed(
            # A token costs two operations a parameter.
            prefill_token_ns=2 * model.mega_parameters * 10**6 * NS_PER_S // flops,
            step_ns=weights_mb * NS_PER_S // mb_per_s + all_reduce_ns,
            step_sequence_ns=model.kv_bytes * _NOMINAL_CONTEXT_TOKENS * 1000 // mb_per_s,
            load_ns=weights_mb * NS_PER_S // load_mb_per_s + _START_NS,
        ),
    )


PRESETS: Final = {preset.name: preset for preset in (_preset(model, gpu) for model in _MODELS for gpu in _GPUS)}
