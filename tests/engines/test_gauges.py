"""What engines say of themselves, by their own names."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonpool.backends import probe
from commonpool.engines.base import MetricNames
from commonpool.engines.gauges import LINES_MAX, Gauges, read
from commonpool.engines.registry import ADAPTERS, OPENAI
from tests.engines.expositions import llamacpp, sglang, vllm
from tests.engines.running import TIMEOUT_NS, asked, engine, model, run, until_busy

NAMED = [name for name, adapter in ADAPTERS.items() if adapter.metric_names is not None]


def names(adapter: str) -> MetricNames:
    found = ADAPTERS[adapter].metric_names
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("adapter", "page", "says"),
    [
        ("vllm", vllm(7, 2, 0.25, 1234), Gauges(7, 2, 250, 1234)),
        ("vllm", vllm(7, 2, 0.25, kv_name="vllm:gpu_cache_usage_perc"), Gauges(7, 2, 250, 0)),
        ("vllm", vllm(), Gauges(0, 0, 0, 0)),
        ("sglang", sglang(3, 1, 0.5), Gauges(3, 1, 500)),
        ("llamacpp", llamacpp(2, 5, 80), Gauges(2, 5, None, 80)),
        ("llamacpp", llamacpp(2, 5, 80, kv=0.125), Gauges(2, 5, 125, 80)),
        ("embedded", llamacpp(1, 0, 8), Gauges(1, 0, None, 8)),
    ],
)
def test_each_engine_is_read_by_its_names(adapter: str, page: str, says: Gauges) -> None:
    assert read(page.encode(), names(adapter)) == says


def test_what_runs_in_all_engines_of_a_server_is_added_up_and_the_fullest_cache_counts() -> None:
    two = vllm(3, 1, 0.5, 10) + 'vllm:num_requests_running{engine="1",model_name="m"} 4.0\n'
    two += 'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75\n'
    assert read(two.encode(), names("vllm")) == Gauges(7, 1, 750, 10)


def test_shards_of_one_copy_count_once_and_copies_each() -> None:
    shards = sglang(6, 2, 0.5, ranks=[(tp, 0) for tp in range(8)])
    assert read(shards.encode(), names("sglang")) == Gauges(6, 2, 500)
    copies = sglang(6, 2, 0.5, ranks=[(tp, tp // 4) for tp in range(8)])
    assert read(copies.encode(), names("sglang")) == Gauges(12, 4, 500)


@pytest.mark.parametrize(
    "page",
    [
        "",
        "ok\n",
        "<html>not found</html>\n",
        "vllm:num_requests_waiting 3\n",
        "vllm:num_requests_running NaN\n",
        "vllm:num_requests_running -1\n",
        "vllm:num_requests_running +Inf\n",
        "vllm:num_requests_running 1e300\n",
        "vllm:num_requests_running many\n",
        'vllm:num_requests_running{engine="0" 3\n',
        "vllm:num_requests_running_by_colour 3\n",
        'vllm:num_requests_running{engine="0"} 1\n' * (LINES_MAX + 1),
        sglang(3),
    ],
)
def test_a_page_that_does_not_say_what_runs_says_nothing(page: str) -> None:
    assert read(page.encode(), names("vllm")) is None


def test_a_figure_without_sense_is_not_known_and_the_others_are() -> None:
    assert read(vllm(3, 1, float("nan"), 5).encode(), names("vllm")) == Gauges(3, 1, None, 5)
    assert read(vllm(3, 1, 1.5, 5).encode(), names("vllm")) == Gauges(3, 1, 1000, 5)
    assert read(vllm(3, 1, 1e308, 1e300).encode(), names("vllm")) == Gauges(3, 1, None, None)


@given(st.binary(max_size=200) | st.text('{}=",\\ 1.eN#\n\t', max_size=40).map(str.encode), st.sampled_from([*NAMED]))
@example(b"\xff", "vllm")
def test_no_page_is_an_error(junk: bytes, adapter: str) -> None:
    found = names(adapter)
    page = b"\n".join([found.running[0].encode() + junk, junk, found.waiting[0].encode() + b" 1"])
    said = read(page, found)
    assert said is None or said.running >= 0


def test_an_engine_without_such_a_page_is_asked_for_none() -> None:
    assert OPENAI.metrics_path is None
    assert OPENAI.metric_names is None


def test_the_embedded_engine_says_what_it_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(tmp_path, model(slots=2)) as handle:

            async def said() -> Gauges | None:
                answer = await probe.ask(handle.target, "GET", "/metrics", b"", TIMEOUT_NS)
                return read(answer.body, names(handle.target.adapter.name))

            assert await said() == Gauges(0, 0, None, 0)
            question = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 900}
            body = question | {"stream": True, "ignore_eos": True}
            async with asked(handle, "/v1/chat/completions", body), asked(handle, "/v1/chat/completions", body):
                await until_busy(handle, slots=2)
                busy = await said()
                assert busy is not None
                assert (busy.running, busy.waiting, busy.kv_milli) == (2, 0, None)

    run(main)
