"""The whole of it: the examples load, and any text at all is a configuration or a list of what is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config import Config, ConfigError, load, load_tenant, parse
from commonpool.config.build import fingerprint
from commonpool.config.structs import (
    Access,
    Address,
    Alerts,
    App,
    AttachedEngine,
    Billing,
    EmbeddedEngine,
    Listen,
    Model,
    NodeConfig,
    Timeouts,
    Tls,
)
from commonpool.core.billing import SharedCost
from commonpool.core.model import (
    UNPRICED,
    Attached,
    Budget,
    Deployment,
    Group,
    Hardware,
    Lending,
    Limits,
    Policy,
    Pool,
    Price,
    Scaling,
    Share,
    Tenant,
    Tier,
    Window,
)

S = 1_000_000_000

FULL = """\
listen:
  gateway: "0.0.0.0:80"
  control: "[::1]:81"
  gateway_tls: {certificate: tls/a.pem, key: /tls/a.key, client_ca: ca.pem}
state: /var/lib/commonpool
store: {url: file:keys/database}
body_max: 1MiB
jobs: {submitters: tenants, users: {t: jobs-t}}
access: {local: false}
outgoing: [10.0.0.0/8, "*.GPU.example"]
timeouts: {header: 1s, body: 2s, idle: 3s, connect: 4s, first_byte: 5s, stall: 6s, drain: 7s}
pools: {main: {isolation: node, resources: {gpu_memory: 640GiB, cpu_cores: 64, memory: 1TiB}}}
nodes:
  n1:
    {gpus: 8, gpu_model: A100, gpu_memory: 80GiB, links: [[0, 1]], mig: {7: [3g.40gb, 4g.40gb]}, cpus: 8, memory: 1TiB,
     isolation: network, network: 10.3.0.0/24, runtimes: [r1], driver: 1.2, unhealthy: [1],
     maintenance: [{from: "1970-01-01T00:00:01Z", until: "1970-01-02T00:00:00Z"}]}
  n2: {gpus: 0, links: all, discover: false}
models:
  a:
    version: 1.10
    gpu: 0.05 gpu
    gpu_memory: 8GiB
    gpu_models: [A100, H100]
    together: island
    runtime: r1
    slots: 4
    context: 8k
    kv_tokens: 16k
    engine:
      kind: attached
      adapter: vllm
      urls: ["http://a:1", "http://b:1"]
      credential: file:/run/key
      served_model: Org/A
      devices: [n1/0, n1/2]
  b: {version: 2, mig: 3g.40gb, slots: 1, context: 10, replicas_max: 3, residency: on_demand, idle_after: 4s,
      start_deadline: 5s, fallback: a, engine: {kind: embedded, file: package:p/b, threads: 3}}
tiers: {gold: {queue_target: 1s, first_token_target: 2s}}
prices:
  currency: CHF
  time_zone: Asia/Kolkata
  gpu_hour: {main: [{price: 0.1, from: 2026-01-01}, {price: 0.2, from: 2026-12-01}]}
  lending: {main: {rate: 87.5%, hours: {20-6: 50%}}}
  meters: {request: [{price: 1}, {price: 2, from: 2026-12-01}], network_gb: 0.02}
costs:
  - {name: room, layer: infrastructure, month: 4000, split: guaranteed, pool: main, from: 2026-01-01, until: 2026-12-01}
  - {name: team, layer: operation, month: 6000, split: request}
retention: 30d
groups: {top: {guaranteed: 4, lending_limit: 3, elastic_cap: 8}, low: {parent: top, guaranteed: 3, reserved: 2}}
tenants:
  t:
    tenant:
      {group: low, guaranteed: 2, reserved: 1, lending_limit: 1, headroom: 0.5, elastic_cap: 3, hard_cap: 4, weight: 5,
       models: [a], resources: {gpu_memory: {guaranteed: 1GiB}, cpu_cores: {guaranteed: 2, elastic_cap: 3}}}
    queue: {priority: {gold: 7}, max_wait: 9s, fallback: false}
    reclaim: {policy: borrow_not_preempt, return_when: task_done}
    limits: {concurrent_requests: 1, queue_length: 2, requests: 3/min, tokens: 4/s, bandwidth: 5kB/s}
    budget: {month: 5000, soft: 75%}
    apps: {x: {cost_center: C1}, default: {cost_center: C2}}
"""

# Midnights in India.
JANUARY = 1_767_205_800 * S
DECEMBER = 1_796_063_400 * S

MODEL_A = Model(
    name="a",
    version="1.10",
    pool="main",
    milli_gpu=100,  # 8 of 80 GiB, which is more than was asked for
    replicas=2,
    slots=4,
    context_tokens=8000,
    kv_tokens=16000,
    engine=AttachedEngine(
        ("http://a:1", "http://b:1"), "vllm", "file:/run/key", "Org/A", devices=(("n1/0",), ("n1/2",))
    ),
    replicas_max=2,
    hardware=Hardware(milli_gpu=50, memory_mib=8192, models=("A100", "H100"), together="island", runtime="r1"),
)
MODEL_B = Model(
    name="b",
    version="2",
    pool="main",
    milli_gpu=428,
    replicas=0,
    slots=1,
    context_tokens=10,
    kv_tokens=10,
    engine=EmbeddedEngine("package:p/b", 3),
    replicas_max=3,
    residency="on_demand",
    idle_ns=4 * S,
    start_deadline_ns=5 * S,
    hardware=Hardware(profile="3g.40gb"),
    fallback="a",
)


def test_every_key_has_its_place() -> None:
    assert parse(FULL, "/etc/commonpool.yaml") == Config(
        policy=Policy(
            pools={
                "main": Pool(
                    "main",
                    7999,
                    "elastic",
                    {"gpu_memory_mib": 640 * 1024, "cpu_milli": 64000, "memory_mib": 1024**2},
                    "node",
                    placed=True,
                )
            },
            tiers={"gold": Tier("gold", 1 * S, 2 * S)},
            groups={"top": Group("top", None, 8000, 4000, 1000), "low": Group("low", "top", None, 3000, 2000)},
            tenants={
                "t": Tenant(
                    name="t",
                    pool="main",
                    guaranteed=2000,
                    elastic_cap=3000,
                    hard_cap=4000,
                    priority={"gold": 7},
                    max_wait_ns=9 * S,
                    reserved=1000,
                    weight=5,
                    group="low",
                    models=("a",),
                    limits=Limits(1, 2, 3, 240, 5000),
                    headroom=500,
                    resources={"gpu_memory_mib": Share(1024), "cpu_milli": Share(2000, 3000)},
                    budget=Budget(5_000_000_000, 75),
                    fallback=False,
                )
            },
            deployments={
                "a": Deployment(
                    model="a",
                    version="1.10",
                    pool="main",
                    milli_gpu=100,
                    slots=4,
                    kv_tokens=16000,
                    context_tokens=8000,
                    hardware=MODEL_A.hardware,
                    scaling=Scaling(2, 2),
                    engine=fingerprint(MODEL_A),
                    attached=(Attached("http://a:1", ("n1/0",)), Attached("http://b:1", ("n1/2",))),
                ),
                "b": Deployment(
                    model="b",
                    version="2",
                    pool="main",
                    milli_gpu=428,
                    slots=1,
                    kv_tokens=10,
                    context_tokens=10,
                    hardware=Hardware(profile="3g.40gb"),
                    scaling=Scaling(0, 3, "on_demand", 4 * S, 5 * S),
                    fallback="a",
                    engine=fingerprint(MODEL_B),
                ),
            },
            prices={"main": Price("main", UNPRICED, ((JANUARY, 100_000), (DECEMBER, 200_000)))},
            hour_offset_ns=1800 * S,
        ),
        models={"a": MODEL_A, "b": MODEL_B},
        apps={"t": {"default": App("default", "C2"), "x": App("x", "C1")}},
        currency="CHF",
        nodes={
            "n1": NodeConfig(
                name="n1",
                pool="main",
                gpus=8,
                gpu_model="A100",
                gpu_memory_mib=80 * 1024,
                links=((0, 1),),
                mig={7: ("3g.40gb", "4g.40gb")},
                cpu_milli=8000,
                memory_mib=1024**2,
                isolation="network",
                network="10.3.0.0/24",
                runtimes=("r1",),
                driver="1.2",
                windows=(Window(1 * S, 86400 * S),),
                unhealthy=(1,),
            ),
            "n2": NodeConfig("n2", "main", gpus=0, links=()),
        },
        listen=Listen(
            Address("0.0.0.0", 80),
            Address("::1", 81),
            Tls(Path("/etc/tls/a.pem"), Path("/tls/a.key"), Path("/etc/ca.pem")),
        ),
        timeouts=Timeouts(*(n * S for n in range(1, 8))),
        body_bytes_max=1024**2,
        access=Access(local=False),
        job_submitters="tenants",
        job_users={"t": "jobs-t"},
        outgoing=("10.0.0.0/8", "*.gpu.example"),
        alerts=Alerts(time_zone="Asia/Kolkata"),
        billing=Billing(
            time_zone="Asia/Kolkata",
            lending={"main": Lending("main", 875, ((20, 6, 500),))},
            meters={"request": ((0, 1_000_000), (DECEMBER, 2_000_000)), "network_gb": ((0, 20_000),)},
            costs=(
                SharedCost("room", "infrastructure", 4_000_000_000, "guaranteed", "main", JANUARY, DECEMBER),
                SharedCost("team", "operation", 6_000_000_000, "request"),
            ),
            retention_ns=30 * 86400 * S,
        ),
        state=Path("/var/lib/commonpool"),
        store_url="file:/etc/keys/database",
        source=Path("/etc/commonpool.yaml"),
        warnings=(),
    )


@pytest.mark.parametrize(
    "file", ["commonpool.yaml", "examples/cluster.yaml", "examples/divisions.yaml", "examples/nodes.yaml"]
)
def test_the_examples_load_without_a_warning(root: Path, file: str) -> None:
    assert load(root / file).warnings == ()


def test_the_example_shares_one_model_between_two_tenants(root: Path) -> None:
    config = load(root / "commonpool.yaml")
    assert {name: tenant.guaranteed for name, tenant in config.policy.tenants.items()} == {
        "support": 2000,
        "research": 2000,
    }
    model = config.models["smollm2"]
    assert (model.replicas, model.milli_gpu, model.slots) == (1, 2000, 4)


def test_the_examples_of_tenants_load(root: Path) -> None:
    assert [load_tenant(file).name for file in sorted((root / "examples/tenants").iterdir())] == [
        "fraud-detection",
        "support",
    ]


def outcome(text: str) -> None:
    """Parse, and check that whatever is wrong is told line by line; anything but a ConfigError ends the test."""
    try:
        parse(text)
    except ConfigError as error:
        lines, problems = str(error).split("\n"), error.problems
    else:
        return
    assert problems
    assert lines == [str(problem) for problem in problems]
    assert all(problem.sentence for problem in problems)


@given(st.text())
def test_any_text_is_a_configuration_or_a_list_of_problems(text: str) -> None:
    outcome(text)


PIECES = [
    *FULL.split("\n"),
    *FULL.split(" "),
    *"&*!|>%@`{}[],:?-#'\"\t\n~",
    "<<: *a",
    "&a",
    "*a",
    "---",
    "null",
    "!!int 3",
]


@given(st.data())
def test_a_mutilated_configuration_is_one_or_a_list_of_problems(data: st.DataObject) -> None:
    text = FULL
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=5)) + text[end:]
    outcome(text)


@given(st.data())
def test_a_value_in_a_wrong_place_is_a_list_of_problems(data: st.DataObject) -> None:
    """Lines change places and values, so that the YAML mostly stays valid and its meaning does not."""
    lines = FULL.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        key, colon, _ = lines[number].partition(": ")
        value = data.draw(st.sampled_from(["", "[]", "{}", "1", "x", "[a]", "{a: {b: c}}", "-1", "0", "9" * 30]))
        lines[number] = key + colon + value if colon else value
    outcome("\n".join(lines))
