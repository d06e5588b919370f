"""The traces of a gateway follow the configuration of the run that has taken it over, and all of them are counted."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from commonpool.cluster.tracing import Tracing
from commonpool.config import Config
from commonpool.config.structs import Observe, Traces
from commonpool.observe.exporting import Became
from commonpool.observe.traces import Track
from tests.cluster.hall import EPOCH, policy_config, request
from tests.gateway.fakes import run, until
from tests.observe.collector import Collector, collector


def config(endpoint: str | None) -> Config:
    return msgspec.structs.replace(policy_config(), observe=Observe(Traces(endpoint, 1000)))


@pytest.fixture
def first() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture
def second() -> Iterator[Collector]:
    with collector() as found:
        yield found


def ended(tracing: Tracing, name: str) -> None:
    """A request begins and is over."""
    traces = tracing.begin()
    assert traces is not None
    track = traces.begin(request(name), None, None)
    assert isinstance(track, Track)
    track.over(200)


def names(at: Collector) -> list[str]:
    return [span.attributes["commonpool.request_id"] for span in at.spans]


def test_traces_go_where_the_next_run_wants_them_and_none_is_lost(first: Collector, second: Collector) -> None:
    async def main() -> None:
        tracing = Tracing(config(first.url), lambda: EPOCH)
        ended(tracing, "1")
        assert not tracing.follow(config(first.url))
        assert tracing.follow(config(second.url))
        ended(tracing, "2")
        await until(lambda: tracing.became == Became(2))
        assert tracing.follow(config(None))
        assert tracing.begin() is None
        await asyncio.to_thread(second.wait_for, bool)
        await until(lambda: tracing.became == Became(2))
        assert tracing.follow(config(second.url))
        ended(tracing, "3")
        await until(lambda: tracing.became == Became(3))
        tracing.follow(config(None))
        assert tracing.became == Became(3)

    run(main)
    assert (names(first), names(second)) == (["1"], ["2", "3"])
