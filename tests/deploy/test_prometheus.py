"""A real Prometheus beside the running product: what it reads, what rules and dashboards ask for, what it answers."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.product import WITHIN_S, Product, free_ports, running
from tests.acceptance.test_durability import engine
from tests.deploy.tools import ROOT, RULES, promtool, tool
from tests.leaks import MARK

REQUESTS: Final = 12
REFERENCE: Final = ROOT / "docs" / "observability.md"
CONFIG: Final = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
observe: {{traces: {{endpoint: "http://127.0.0.1:{port}/not-a-collector"}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu, elastic_cap: 4_gpu}}, budget: {{month: 100}}}}
  research: {{tenant: {{guaranteed: 2_gpu}}}}
"""
_NAME: Final = re.compile(r"\bcommonpool_\w+")
_RECORDED: Final = re.compile(r"\b\w+:commonpool_\w+:\w+")
_SELECTED: Final = re.compile(r"(\bcommonpool_\w+)\{([^}]*)\}")
_GROUPED: Final = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")
_FROM_PROMETHEUS: Final = {"instance", "job", "le", "promise", ""}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with engine() as port, running(tmp_path_factory.mktemp("watched"), CONFIG.format(port=port)) as started:
        for number in range(REQUESTS):
            body = {"model": "mock", "messages": [{"role": "user", "content": MARK}], "max_tokens": 4}
            started.post("/v1/chat/completions", body, ("support", "research")[number % 2])
        yield started


@pytest.fixture(scope="module")
def prometheus(product: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Asks a Prometheus of its own, which has the example's configuration, but for the address and how often."""
    program, folder, port = tool("prometheus"), tmp_path_factory.mktemp("prometheus"), free_ports(1)[0]
    config = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())
    # Often, and yet a busy machine has the time to answer.
    config["global"] = {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [product.control.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    base = f"http://127.0.0.1:{port}"

    def ask(path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{base}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=180) as answer:
            return json.loads(answer.read())["data"]

    options = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (folder / "prometheus.out").open("wb") as out,
        subprocess.Popen([program, *options], cwd=folder, stdout=out, stderr=out) as process,
    ):
        try:
            yield ask
        finally:
            process.terminate()


def until(asked: Callable[[], Any]) -> Any:
    """What it gives as soon as that is something."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            if found := asked():
                return found
        except OSError:  # it does not listen yet
            pass
        time.sleep(0.1)
    raise AssertionError("nothing came")


def served(product: Product) -> dict[str, set[str]]:
    """The labels of each metric that has values, by the names that can be asked for."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(product.get("/metrics")):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def declared(product: Product) -> set[str]:
    """The names of all metrics, also of those that have no value now."""
    names = set()
    for line in product.get("/metrics").splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            names |= {f"{name}_{each}" for each in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and what is asked there, in the rules and on the dashboards."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for file in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{file.name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{file.name}: {variable['name']}", variable["query"]


def labels_of(text: str) -> set[str]:
    return {each.strip() for each in text.split(",")}


def test_every_metric_and_label_that_is_asked_for_is_there(product: Product) -> None:
    names, labels = declared(product), served(product)
    recorded = {rule for rule, _ in expressions() if ":" in rule and ".json" not in rule}
    for where, asked in expressions():
        own = _RECORDED.sub("", asked)
        assert set(_RECORDED.findall(asked)) <= recorded, where
        used = set(_NAME.findall(own))
        assert used or _RECORDED.search(asked) or "up{" in asked, where
        assert used <= names, (where, used - names)
        known = set[str]().union(*(labels.get(name, set()) for name in used), _FROM_PROMETHEUS)
        if _RECORDED.search(asked):
            known |= {"tenant", "tier"}
        if used - set(labels):  # without a value nobody can see its labels
            continue
        for name, matchers in _SELECTED.findall(own):
            for matcher in labels_of(matchers):
                assert re.split(r"[=!]", matcher)[0] in labels[name] | _FROM_PROMETHEUS, (where, matcher)
        for grouped in _GROUPED.findall(own):
            assert labels_of(grouped) <= known, (where, grouped)


def test_the_reference_has_what_is_served_and_nothing_else(product: Product) -> None:
    text, labels = product.get("/metrics"), served(product)
    told = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (.*)$", text, re.MULTILINE))
    rows = re.findall(r"^\| `(commonpool_\w+)` \| (\w+) \| (.*?) ?\| (.*) \|$", REFERENCE.read_text(), re.MULTILINE)
    assert [(name, kind, says) for name, kind, _, says in rows] == [
        (name, kinds[name], told[name]) for name in sorted(told)
    ]
    for name, kind, listed, _ in rows:
        own = f"{name}_count" if kind == "histogram" else name
        if own in labels:
            assert set(re.findall(r"`(\w+)`", listed)) == labels[own], name


def test_promtool_has_nothing_to_say_of_what_is_served(product: Product) -> None:
    assert promtool("check", "metrics", stdin=product.get("/metrics").encode()) == ""


def test_a_real_prometheus_reads_the_product_and_counts_as_it_does(prometheus: Callable[..., Any]) -> None:
    def counted() -> Any:
        return prometheus("query", query="sum by (tenant) (commonpool_requests_total)")["result"]

    found = {each["metric"]["tenant"]: float(each["value"][1]) for each in until(counted)}
    assert found == {"support": REQUESTS / 2, "research": REQUESTS / 2}

    def read() -> Any:
        (target,) = prometheus("targets")["activeTargets"]
        return (target["health"], target["lastError"]) == ("up", "")

    assert until(read)


def test_all_rules_are_loaded_and_none_fails(prometheus: Callable[..., Any]) -> None:
    until(lambda: prometheus("query", query="up == 1")["result"])  # of nothing no rule can fail

    def evaluated() -> Any:
        groups = prometheus("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None

    rules = until(evaluated)
    names = {rule["name"] for rule in rules}
    assert names == {rule for rule, _ in expressions() if ".json" not in rule}
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []


def test_every_expression_of_a_dashboard_can_be_asked(prometheus: Callable[..., Any]) -> None:
    until(lambda: prometheus("query", query="up")["result"])
    for where, asked in expressions():
        if ".json" not in where or asked.startswith("label_values("):
            continue
        plain = re.sub(r'=~?"\$\w+"', '=~".*"', asked).replace("$__rate_interval", "5m").replace("$__range", "1h")
        assert prometheus("query", query=plain)["resultType"] in ("vector", "scalar"), where


def test_the_folder_of_rules_has_what_the_configuration_names() -> None:
    named = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())["rule_files"]
    assert [Path(each).name for each in named] == [RULES.name]
