"""Given models and replicas, when their pages are opened, then what needs attention is first, with its reason."""

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.api.terms import ModelTerms
from commonpool.api.wire.status import EngineStatus
from commonpool.console import models
from commonpool.observe.decisions import Decision
from tests.api.fakes import ADMIN, MODEL, NOW, REPLICA, FakeOperations
from tests.console.visitor import visiting, words

BROKEN = msgspec.structs.replace(
    MODEL, ready=0, broken=True, error="The engine ended with status 1.", unplaced="Node n1 has too little memory."
)


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    made.models_now = (MODEL,)
    return made


def test_a_model_with_what_it_is_and_how_it_stands(product: FakeOperations) -> None:
    with visiting(product) as local:
        shown = words(local.get("/models").text)
        one = words(local.get("/models/echo").text)
    for word in ("echo", "v1", "1 of 1", "late first tokens", "ready"):
        assert word in shown, word
    for word in ("Model echo", "2,048", "2 engines that run elsewhere", "echo-0.1", "1 / 4"):
        assert word in one, word


def test_why_a_model_does_not_run_is_said(product: FakeOperations) -> None:
    product.models_now = (BROKEN,)
    with visiting(product) as local:
        assert "broken" in words(local.get("/models").text)
        one = words(local.get("/models/echo").text)
    assert "The engine ended with status 1." in one
    assert "Node n1 has too little memory." in one


def test_broken_ones_come_first() -> None:
    terms = [ModelTerms(name, "", "main", 1, 1, 1, 1, 1, 1, 0, "") for name in ("a", "b", "c")]
    now = [
        msgspec.structs.replace(MODEL, name="a"),
        msgspec.structs.replace(MODEL, name="b", waiting=9),
        msgspec.structs.replace(BROKEN, name="c"),
    ]
    assert [line.terms.name for line in models.lines(terms, now, ())] == ["c", "b", "a"]


def test_decisions_about_a_model_are_on_its_page(product: FakeOperations) -> None:
    product.fake_feed.decisions.add(Decision(NOW, "scaling", "Model echo gets one more replica.", model="echo"))
    product.fake_feed.decisions.add(Decision(NOW, "scaling", "Model other gets none.", model="other"))
    with visiting(product) as local:
        shown = words(local.get("/models/echo").text)
    assert "Model echo gets one more replica." in shown
    assert "Model other gets none." not in shown


def test_there_is_no_page_of_what_there_is_not(product: FakeOperations) -> None:
    with visiting(product) as local:
        assert local.get("/models/other").status_code == 404


def test_replicas_are_filtered_and_those_not_ready_come_first(product: FakeOperations) -> None:
    failing = msgspec.structs.replace(REPLICA, id="echo-1.1", state="failing")
    product.replica_states = [(REPLICA, failing)]
    with visiting(product) as local:
        page = local.get("/replicas").text
        assert page.index("echo-1.1") < page.index("echo-0.1")
        only = words(local.get("/replicas?state=failing").text)
        assert "failing: circuit open" in only
        assert "echo-0.1" not in only
        assert "No replica is like that." in words(local.get("/replicas?state=draining").text)


def test_where_replicas_run_is_the_operators_own(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "viewer", "support")
    with visiting(product, authorization=ADMIN.decode()) as local:
        assert local.get("/replicas").status_code == 403
        one = local.get("/models/echo")
        assert one.status_code == 200
        assert "echo-0.1" not in one.text
        assert 'href="/replicas"' not in local.get("/models").text


def test_what_an_engine_says_of_itself_and_what_is_not_known(product: FakeOperations) -> None:
    silent = msgspec.structs.replace(REPLICA, id="echo-1.1", engine=EngineStatus(NOW))
    full = msgspec.structs.replace(REPLICA, engine=EngineStatus(NOW, 7, 2, 815, foreign=5))
    product.replica_states = [(silent, full, msgspec.structs.replace(REPLICA, id="echo-2.1"))]
    with visiting(product) as local:
        shown = words(local.get("/replicas").text)
    for word in ("7 run, 2 wait", "5 not from here", "82 %"):
        assert shown.count(word) == 1, word
    assert "0 run, 0 wait" not in shown
    table = shown[shown.index("KV cache") :]
    assert table.count("unknown") == 4  # of two replicas what runs, and the cache
