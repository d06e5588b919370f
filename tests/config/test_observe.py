"""What is told to those who watch."""

from collections.abc import Callable

import pytest

from commonpool.config import Kind, diff, parse
from commonpool.config.structs import Observe, Traces

Edit = Callable[..., str]
Wrong = Callable[[str], list[str]]
ON = '\nobserve: {traces: {endpoint: "http://127.0.0.1:4318/", sample: 12.5%}}\n'


def test_there_are_no_traces_unless_they_go_somewhere(edit: Edit) -> None:
    assert parse(edit()).observe == Observe(Traces(None, 100))
    assert parse(edit(end=ON)).observe == Observe(Traces("http://127.0.0.1:4318", 125))


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        ("endpoint: collector", "is not a collector's address; write it like http://127.0.0.1:4318"),
        ('endpoint: "http://me:word@h:4318"', "is not a collector's address"),
        ('endpoint: "http://h:4318/v1/traces"', "ends in /v1/traces, which is added; leave it out"),
        ('endpoint: "http://169.254.169.254"', "is where machines get their credentials"),
        ("sample: 101%", "100%"),
    ],
)
def test_what_is_wrong_is_said(edit: Edit, wrong: Wrong, traces: str, said: str) -> None:
    (problem,) = wrong(edit(end=f"\nobserve: {{traces: {{{traces}}}}}\n"))
    assert said in problem


def test_a_collector_is_one_of_the_destinations_where_these_are_listed(edit: Edit, wrong: Wrong) -> None:
    listed = '\noutgoing: [10.0.0.0/8]\nobserve: {traces: {endpoint: "http://192.168.0.9:4318"}}\n'
    assert any("192.168.0.9 is not one of the destinations under outgoing" in each for each in wrong(edit(end=listed)))


def test_another_collector_needs_a_restart(edit: Edit) -> None:
    changes = diff(parse(edit()), parse(edit(end=ON)))
    assert [(each.key, each.old, each.new, each.kind) for each in changes] == [
        ("observe.traces.endpoint", None, "http://127.0.0.1:4318", Kind.RESTART),
        ("observe.traces.sample", "10%", "12.5%", Kind.RESTART),
    ]
