"""Pages of metrics as engines write them: their names, labels and order, with the values that a test wants."""

from collections.abc import Mapping, Sequence


def vllm(
    running: float = 0,
    waiting: float = 0,
    kv: float = 0,
    tokens: float = 0,
    *,
    engines: int = 1,
    kv_name: str = "vllm:kv_cache_usage_perc",
) -> str:
    """A vLLM server; the values are those of each of its engines (data parallel)."""
    labels = [f'{{engine="{engine}",model_name="m"}}' for engine in range(engines)]
    reasons = [f'{{engine="{engine}",model_name="m",reason="capacity"}}' for engine in range(engines)]
    return _page(
        ("vllm:num_requests_running", "gauge", dict.fromkeys(labels, running)),
        ("vllm:num_requests_waiting", "gauge", dict.fromkeys(labels, waiting)),
        ("vllm:num_requests_waiting_by_reason", "gauge", dict.fromkeys(reasons, waiting)),
        ("vllm:engine_sleep_state", "gauge", {'{engine="0",model_name="m",sleep_state="awake"}': 1}),
        (kv_name, "gauge", dict.fromkeys(labels, kv)),
        ("vllm:prompt_tokens_total", "counter", dict.fromkeys(labels, 100 * tokens)),
        ("vllm:generation_tokens_total", "counter", dict.fromkeys(labels, tokens)),
        ("vllm:cache_config_info", "gauge", {'{block_size="16",engine="0",num_gpu_blocks="27000"}': 1}),
        ("vllm:time_to_first_token_seconds", "histogram", _histogram('engine="0",model_name="m"')),
    )


def sglang(
    running: float = 0, waiting: float = 0, kv: float = 0, *, ranks: Sequence[tuple[int, int]] = ((0, 0),)
) -> str:
    """An SGLang server; `ranks` are the tensor and data parallel ranks that report, each with these values."""
    labels = [f'{{dp_rank="{dp}",engine_type="unified",model_name="m",pp_rank="0",tp_rank="{tp}"}}' for tp, dp in ranks]
    return _page(
        ("sglang:num_running_reqs", "gauge", dict.fromkeys(labels, running)),
        ("sglang:num_running_reqs_offline_batch", "gauge", dict.fromkeys(labels, 0)),
        ("sglang:num_used_tokens", "gauge", dict.fromkeys(labels, 4096 * kv)),
        ("sglang:token_usage", "gauge", dict.fromkeys(labels, kv)),
        ("sglang:gen_throughput", "gauge", dict.fromkeys(labels, 0)),
        ("sglang:num_queue_reqs", "gauge", dict.fromkeys(labels, waiting)),
        ("sglang:cache_hit_rate", "gauge", dict.fromkeys(labels, 0.5)),
    )


def llamacpp(running: float = 0, waiting: float = 0, decodes: float = 0, *, kv: float | None = None) -> str:
    """llama.cpp's server; `kv` is of versions up to the spring of 2025."""
    older = [] if kv is None else [("llamacpp:kv_cache_usage_ratio", "gauge", {"": kv})]
    return _page(
        ("llamacpp:prompt_tokens_total", "counter", {"": 12}),
        ("llamacpp:n_decode_total", "counter", {"": decodes}),
        ("llamacpp:predicted_tokens_seconds", "gauge", {"": 0}),
        *older,
        ("llamacpp:requests_processing", "gauge", {"": running}),
        ("llamacpp:requests_deferred", "gauge", {"": waiting}),
        ("llamacpp:n_busy_slots_per_decode", "gauge", {"": 1.5}),
    )


def _page(*families: tuple[str, str, Mapping[str, float]]) -> str:
    lines = []
    for name, kind, samples in families:
        metric = name.removesuffix("_total") if kind == "counter" else name
        lines += [f"# HELP {metric} Text.", f"# TYPE {metric} {kind}"]
        lines += [f"{name}{labels} {float(value)}" for labels, value in samples.items()]
    return "\n".join([*lines, ""])


def _histogram(labels: str) -> dict[str, float]:
    buckets = {f'_bucket{{{labels},le="{bound}"}}': 0.0 for bound in ("0.001", "0.5", "+Inf")}
    return {**buckets, f"_count{{{labels}}}": 0.0, f"_sum{{{labels}}}": 0.0}
