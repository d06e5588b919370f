"""Where traces go, by the configuration and the environment."""

import asyncio

import pytest

from commonpool.app.traces import exporter, resource, traces
from commonpool.config.structs import Config, Observe, Traces
from commonpool.core.model import NS_PER_S, Policy, Request
from commonpool.observe.exporting import Exporter, families
from commonpool.observe.traces import Track
from tests.observe.collector import collector


def config(endpoint: str | None, outgoing: tuple[str, ...] | None = None) -> Config:
    policy = Policy({}, {}, {}, {}, {}, {})
    return Config(policy, {}, {}, "EUR", outgoing=outgoing, observe=Observe(Traces(endpoint, 1000)))


def test_without_an_endpoint_there_are_none() -> None:
    assert exporter(config(None), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:4318"}) is None
    assert traces(config(None), None, lambda: 0) is None


def test_the_environment_says_more_of_who_is_traced() -> None:
    plain = resource({})
    assert (plain["service.name"], len(plain["service.instance.id"])) == ("commonpool", 16)
    said = resource({"OTEL_SERVICE_NAME": "pool", "OTEL_RESOURCE_ATTRIBUTES": "a=b%2Cc, d = e,junk,=x,service.name=no"})
    assert {key: said[key] for key in ("service.name", "a", "d")} == {"service.name": "pool", "a": "b,c", "d": "e"}
    assert len(said) == 4


def offered(takes: Exporter, number: int) -> None:
    begun = traces(config("http://h"), takes, lambda: number * NS_PER_S)
    assert begun is not None
    track = begun.begin(Request(f"r{number}", "a", "app", "m", "interactive", "chat", 7), None, None)
    assert isinstance(track, Track)
    track.over(200)
    track.over(500)  # once is enough


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"OTEL_EXPORTER_OTLP_HEADERS": "X-Key=one"}, "one"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "x-key=one", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=a%3Db"}, "a=b"),
        ({}, None),
    ],
)
def test_what_is_over_comes_to_the_collector_with_its_headers(environment: dict[str, str], key: str | None) -> None:
    with collector() as watcher:
        takes = exporter(config(watcher.url), environment)
        assert takes is not None
        offered(takes, 1)
        (span,) = watcher.wait_for(bool)
        takes.close()
    assert span.attributes["http.response.status_code"] == 200
    assert watcher.headers[0].get("x-key") == key


def test_nothing_is_sent_to_what_is_not_listed() -> None:
    with collector() as watcher:
        takes = exporter(config(watcher.url, outgoing=("10.0.0.0/8",)), {})
        assert takes is not None
        offered(takes, 1)
        asyncio.run(asyncio.to_thread(takes.close))
    assert watcher.headers == []
    exported, dropped = families(takes.became)
    assert [value for _, value in exported.samples] == [0]
    assert [value for _, value in dropped.samples] == [0, 1]
