"""What people see of a product on a Ray cluster: the same as in one process, whichever gateway a request enters at."""

import contextlib
import json
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from math import ceil
from typing import Any

import pytest

pytest.importorskip("ray")

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.acceptance.events import listening
from tests.cli.terminal import Terminal
from tests.cluster.town import START_S, Town

pytestmark = [
    pytest.mark.usefixtures("town"),
    # As in test_town.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STEPS = ["arrived", "dispatched", "first_token"]


@contextlib.contextmanager
def answering(town: Town, host: str, text: str, **headers: str) -> Iterator[str]:
    """The id of a request whose answer has begun, as a stream; behind the block all of it has come."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 5, "stream": True}
    told = {"authorization": f"Bearer {town.keys['support']}", "content-type": "application/json", **headers}
    request = urllib.request.Request(town.gateway_url(host) + "/v1/chat/completions", json.dumps(body).encode(), told)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        yield answer.headers["x-request-id"]
        assert answer.read().endswith(b"data: [DONE]\n\n")


def samples(town: Town, name: str, **labels: str) -> list[Sample]:
    """The samples of a metric that have these labels among theirs."""
    found = [each for family in text_string_to_metric_families(town.read("/metrics")) for each in family.samples]
    return [each for each in found if each.name == name and labels.items() <= each.labels.items()]


def total(town: Town, name: str, **labels: str) -> float:
    return sum(each.value for each in samples(town, name, **labels))


def recorded(town: Town, request_id: str) -> dict[str, Any]:
    """The record of a request that is over; its gateway may tell the core of that a moment later than the client."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [each for each in town.records() if each["request_id"] == request_id]
        return bool(found)

    town.until(there)
    return found[0]


def what(town: Town, request_id: str) -> list[str]:
    """The steps of a request's life so far, but for its wait."""
    steps = town.get(f"/admin/v1/requests/{request_id}/timeline")["steps"]
    assert [step["at_ns"] for step in steps] == sorted(step["at_ns"] for step in steps)
    return [step["what"] for step in steps if step["what"] != "queued"]


def test_decisions_are_heard_as_they_come_whichever_gateway_brought_them_about(town: Town) -> None:
    with listening(town.control) as stream:
        answers = town.ask_until(lambda: bool(stream.said("loan")), *((host, "support") for host in town.hosts * 3))
        assert {each.status for each in answers} == {200}
        town.until(lambda: any("support has given back what it borrowed" in said for said in stream.said("loan")))
        assert stream.said("loan")[0].startswith("support borrows ")
        town.until(lambda: any(name == "changed" and "tenants" in data["what"] for name, data in list(stream.events)))
    decided = town.get("/admin/v1/decisions")["decisions"]
    placed = {each["subject"]: each["node"] for each in decided if each["kind"] == "placement"}
    assert placed == {name: replica["node"] for name, replica in town.replicas().items()}
    viewer = town.post("/admin/v1/keys", {"scope": "admin", "role": "viewer", "tenant": "support"})["key"]
    own = town.get("/admin/v1/decisions", viewer)["decisions"]
    assert {each["node"] for each in own} == {""}
    assert {each["kind"] for each in own} >= {"loan", "placement"}


def test_a_request_is_one_trace_whichever_gateway_it_enters_at(town: Town) -> None:
    exported = total(town, "commonpool_traces_exported_total")
    for number, host in enumerate(town.hosts, 1):
        trace, parent = f"{number:032x}", f"{number:016x}"
        with answering(town, host, "now", traceparent=f"00-{trace}-{parent}-01", tracestate="v=1") as request_id:
            pass
        found = town.collector.wait_for(lambda spans: any(span.trace_id == trace for span in spans))  # noqa: B023
        root, queue, run = (span for span in found if span.trace_id == trace)
        assert [span.name for span in (root, queue, run)] == ["chat tiny", "queue", "chat tiny"]
        assert [span.parent_id for span in (root, queue, run)] == [parent, root.span_id, root.span_id]
        record = recorded(town, request_id)
        assert root.attributes["commonpool.request_id"] == request_id
        assert root.attributes["gen_ai.usage.output_tokens"] == record["tokens_out"]
        assert run.attributes["commonpool.replica"] == record["replica"]
        assert run.attributes["server.address"] == town.replicas()[record["replica"]]["node"]
        log = town.folder / "var" / "engines" / f"{record['replica'].rpartition('.')[0]}.log"
        told = f"traced 00-{trace}-{run.span_id}-01"
        town.until(lambda: told in log.read_text().splitlines())  # noqa: B023
    town.until(lambda: total(town, "commonpool_traces_exported_total") == exported + len(town.hosts))


def test_what_gateways_on_all_nodes_count_is_added_up_once(town: Town) -> None:
    def now() -> dict[str, float]:
        return {
            "refused": total(town, "commonpool_refusals_total", reason="invalid_api_key"),
            **{
                tenant: total(town, "commonpool_requests_total", tenant=tenant, outcome="completed")
                for tenant in ("support", "research")
            },
            "waits": total(town, "commonpool_wait_seconds_count"),
        }

    town.until(town.settled)  # what was answered earlier is counted
    before, each = now(), 2 * len(town.hosts)
    town.keys["stranger"] = "cp_nobody_knows"
    asked = [(host, "now", tenant) for host in town.hosts * 2 for tenant in ("support", "research", "stranger")]
    assert sorted(answer.status for answer in town.ask_all(*asked)) == [200] * 2 * each + [401] * each
    added = {"refused": each, "support": each, "research": each, "waits": 2 * each}
    town.until(lambda: now() == {name: before[name] + added[name] for name in before})
    assert {tuple(sample.labels) for sample in samples(town, "commonpool_requests_total")} == {
        ("tenant", "model", "tier", "outcome")
    }
    listening = {sample.labels["node"]: sample.value for sample in samples(town, "commonpool_gateway_listening")}
    assert listening == dict.fromkeys(town.hosts, 1.0)


def test_waits_at_all_gateways_are_kept_in_one_sketch(town: Town) -> None:
    town.ask_all(*((host, "slow 300", "research") for host in town.hosts * 4))
    town.until(town.settled)
    records = [record for record in town.records() if record["tenant"] == "research"]
    row: dict[str, Any] = {}

    def counted() -> bool:
        row.update(next(row for row in town.get("/admin/v1/waits?by=tenant")["rows"] if row["group"] == ["research"]))
        return bool(row["completed"] == len(records))

    town.until(counted)
    assert len({record["request_id"].partition("-")[0] for record in records}) == len(town.hosts)
    waits = sorted(record["wait_ns"] for record in records)
    median = waits[ceil(len(waits) / 2) - 1]
    assert (row["completed"], row["wait"]["count"], row["wait"]["max_ns"]) == (len(records), len(records), waits[-1])
    assert abs(row["wait"]["p50_ns"] - median) <= median // 100
    town.until(
        lambda: any(
            (each["tenant"], each["name"], each["spread"]["count"]) == ("research", "queue", len(records))
            for each in town.get("/admin/v1/promises")["promises"]
        )
    )


def test_the_life_of_a_request_at_another_node_is_told_while_it_runs(town: Town) -> None:
    flag = town.folder / "go-on-1"
    with answering(town, town.hosts[1], f"until {flag}") as request_id:
        town.until(lambda: what(town, request_id) == STEPS)
        watching = Terminal("watch", request_id, "--control", town.control, folder=town.folder)
        with contextlib.closing(watching) as terminal:
            terminal.shows("tiny for support", "dispatched", "first token", "running since")
            flag.touch()
            terminal.shows("completed", "its tenant is charged")
            assert terminal.ends() == 0
    town.until(lambda: what(town, request_id) == [*STEPS, "ended"])


def test_the_terminal_shows_the_cluster_live(town: Town) -> None:
    with contextlib.closing(Terminal("top", "--control", town.control, folder=town.folder)) as terminal:
        terminal.shows("by p99 wait", "support", "research", "4 of 4", "decisions")
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_console_shows_the_cluster_and_its_playground_reaches_a_gateway(town: Town) -> None:
    first, platform = town.read("/"), town.read("/platform")
    assert all(tenant in first for tenant in ("support", "research", "single", "hurried"))
    assert "replica tiny-0.1 of tiny starts" in town.read("/decisions")
    assert all(host in platform for host in town.hosts)
    assert town.status()["gateway"] == town.gateway_url(town.hosts[0])
    form = {"key": town.keys["support"], "prompt": "now", "model": "tiny", "max_tokens": "5"}
    own = {"origin": town.control}  # as a browser says of a form of this page
    request = urllib.request.Request(f"{town.control}/playground", urllib.parse.urlencode(form).encode(), own)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        said = answer.read().decode()
    assert any(replica["node"] in said for replica in town.replicas().values())
    assert said.endswith("data: [DONE]\n\n")


def test_a_gateway_that_cannot_listen_is_an_alert_and_listens_as_soon_as_it_can(town: Town) -> None:
    host = town.hosts[2]
    taken: list[socket.socket] = []

    def take() -> bool:
        """Its port, which is free in the moment in which its process is gone, and before the next one is there."""
        with contextlib.suppress(StopIteration):  # nobody listens now
            town.kill_gateway(host)
        taken.append(socket.create_server((host, int(town.gateway_url(host).rpartition(":")[2]))))
        return True

    def away() -> list[str]:
        alerts = town.get("/admin/v1/alerts")["alerts"]
        return [each["sentence"] for each in alerts if each["name"] == "gateway_away" and each["state"] != "resolved"]

    town.until(take)
    try:
        town.until(lambda: any("cannot listen" in said and f"node {host}" in said for said in away()))
        assert total(town, "commonpool_gateway_listening", node=host) == 0
        assert total(town, "commonpool_gateway_listening") == len(town.hosts) - 1
    finally:
        taken[0].close()
    town.until(lambda: total(town, "commonpool_gateway_listening") == len(town.hosts))
    assert {answer.status for answer in town.ask_all((host, "now", "support"))} == {200}


def test_who_follows_a_request_goes_on_when_the_core_is_another_one(town: Town) -> None:
    flag, pid = town.folder / "go-on-2", town.core_pid()
    with contextlib.ExitStack() as stack:
        request_id = stack.enter_context(answering(town, town.hosts[1], f"until {flag}"))
        watching = Terminal("watch", request_id, "--control", town.control, folder=town.folder)
        terminal = stack.enter_context(contextlib.closing(watching))
        terminal.shows("arrived", "running since")
        town.kill_core()
        terminal.shows("tries again")
        town.until(lambda: town.core_pid() != pid and what(town, request_id)[-1] == "first_token")
        terminal.shows("running since")
        flag.touch()
        terminal.shows("completed")
        assert terminal.ends() == 0
