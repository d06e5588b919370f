"""The engines that are known, as data. Metric and path names are those of the engines' own documentation."""

from typing import Final

import msgspec

from commonpool.engines.base import Adapter, MetricNames

OPENAI: Final = Adapter("openai", health_path="/v1/models", metrics_path=None)

# Where all its requests are aborted at once it shows them as running until it works again, hence `work`.
VLLM: Final = Adapter(
    "vllm",
    metric_names=MetricNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_use=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        work=("vllm:generation_tokens_total",),
    ),
    salt_field="cache_salt",
)

# It counts tokens at the end of a request; its gauges are right again within half a minute of its last work.
SGLANG: Final = Adapter(
    "sglang",
    metric_names=MetricNames(
        running=("sglang:num_running_reqs",), waiting=("sglang:num_queue_reqs",), kv_use=("sglang:token_usage",)
    ),
    salt_field="cache_salt",
)

LLAMACPP: Final = Adapter(
    "llamacpp",
    metric_names=MetricNames(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_use=("llamacpp:kv_cache_usage_ratio",),  # up to the spring of 2025
        work=("llamacpp:n_decode_total",),
    ),
    usage_per_choice=True,
    frees_streams_only=True,
    progress_field="return_progress",
    cache_field="cache_prompt",
)

# The same server in a process of our own, which nobody else can reach: what its slots hold is known.
EMBEDDED: Final = msgspec.structs.replace(LLAMACPP, name="embedded", slot_field="id_slot")

ADAPTERS: Final = {adapter.name: adapter for adapter in (OPENAI, VLLM, SGLANG, LLAMACPP, EMBEDDED)}
