"""The engines that are known, as data. Metric and path names are those of the engines' own documentation."""

from typing import Final

from commonpool.engines.base import Adapter, MetricNames

OPENAI: Final = Adapter("openai", health_path="/v1/models", metrics_path=None)

VLLM: Final = Adapter(
    "vllm",
    metric_names=MetricNames(
        running="vllm:num_requests_running", waiting="vllm:num_requests_waiting", kv_use="vllm:kv_cache_usage_perc"
    ),
)

LLAMACPP: Final = Adapter(
    "llamacpp",
    metric_names=MetricNames(running="llamacpp:requests_processing", waiting="llamacpp:requests_deferred"),
    usage_per_choice=True,
    frees_streams_only=True,
    progress_field="return_progress",
)

ADAPTERS: Final = {adapter.name: adapter for adapter in (OPENAI, VLLM, LLAMACPP)}
