"""Given a product, when it is asked where some work would go, then it says so, or what is wrong with the question."""

from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.config import parse_sources
from commonpool.core.events import NodeSeen
from commonpool.core.machine import Machine
from commonpool.core.model import Device, Node
from commonpool.core.trial import Trial
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources


def test_a_job_of_a_tenant(local: TestClient, product: FakeOperations) -> None:
    config = parse_sources(sources(CONFIG.replace("gpus: 4_gpu", "gpus: 6_gpu")))  # its engines hold 4 of them
    product.machine = Machine(config.policy)
    product.machine.handle(NodeSeen(Node("n1", "main", tuple(Device(f"n1/{n}") for n in range(6)))), NOW)
    answer = local.post("/admin/v1/place", json={"tenant": "support", "hardware": {"milli_gpu": 1000}})
    trial = msgspec.json.decode(answer.content, type=Trial)
    assert (answer.status_code, trial.node, trial.devices) == (200, "n1", ("n1/0",))
    assert trial.allowance is not None
    assert trial.allowance.own_milli_gpu == 1000
    assert product.machine.state.inventories["main"].free == 6000


def test_a_replica_of_a_model(local: TestClient) -> None:
    trial = msgspec.json.decode(local.post("/admin/v1/place", json={"model": "echo"}).content, type=Trial)
    assert "engines that others have started" in trial.impossible


@pytest.mark.parametrize(
    ("question", "param", "says"),
    [
        ({}, None, "name a tenant for a job of its, or a model"),
        ({"tenant": "support", "model": "echo"}, None, "and not both"),
        ({"model": "ecco"}, "model", "there is no model 'ecco'; there is echo"),
        ({"tenant": "suport", "hardware": {}}, "tenant", "there is no tenant 'suport'"),
        ({"tenant": "support"}, "hardware", "give its hardware"),
        ({"model": "echo", "expected_ns": 5}, "hardware", "is in the configuration"),
        ({"tenant": "support", "hardware": {}, "expected_ns": 0}, None, ">= 1"),
    ],
)
def test_what_cannot_be_asked(local: TestClient, question: dict[str, Any], param: str | None, says: str) -> None:
    answer = local.post("/admin/v1/place", json=question)
    assert (answer.status_code, answer.json()["error"].get("param")) == (400, param)
    assert says in answer.json()["error"]["message"]


def test_what_can_never_be_is_an_answer(local: TestClient) -> None:
    answer = local.post("/admin/v1/place", json={"tenant": "support", "hardware": {"milli_gpu": 1500}})
    trial = msgspec.json.decode(answer.content, type=Trial)
    assert answer.status_code == 200
    assert "1.5 GPUs are more than one and not whole; ask for 1 or 2, or for a part of one." in trial.impossible


def test_hints_are_none_where_nothing_could_be_merged(local: TestClient) -> None:
    assert local.get("/admin/v1/hints").json() == {"hints": []}
