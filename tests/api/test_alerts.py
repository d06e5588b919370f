"""Alerts over the admin API: who sees what, silences, and the test of a channel."""

import asyncio

import msgspec
import pytest
from starlette.testclient import TestClient

from commonpool.access.callers import by_admin_key
from commonpool.access.scope import Scope
from commonpool.api import alerts
from commonpool.api.operations import NotFoundError
from commonpool.api.subjects import Who
from commonpool.api.wire.alerts import NewSilence
from commonpool.core.firing import Episode
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.telling import Silence
from commonpool.store.alerts import KeptEpisode
from commonpool.store.memory import MemoryStore
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.core.troubles import AWAY, SCALED, SOFT

CHANNELS = """
alerts:
  channels:
    ops: {kind: webhook, url: "http://127.0.0.1:9/", severity: info}
    team: {kind: slack, url: env:SLACK, tenant: support}
"""
OWN = msgspec.structs.replace(SOFT, tenant="support")
FOREIGN = msgspec.structs.replace(SOFT, tenant="research")
OVER = Episode(AWAY, NOW - 9, NOW - 9, NOW - 8, ended_ns=NOW - 7)
OF_SUPPORT = {"authorization": "Bearer support"}


@pytest.fixture
def product() -> FakeOperations:
    store = MemoryStore()
    found = [Episode(each, NOW - 5, NOW - at, NOW) for at, each in enumerate((OWN, FOREIGN, SCALED))]
    store.save_alerts([KeptEpisode(each) for each in (*found, OVER)])
    product = FakeOperations(store)
    product.configure(sources(CONFIG + CHANNELS))
    product.callers[b"Bearer support"] = by_admin_key("k7", "tenant-admin", "support")
    return product


def test_the_platform_sees_all_of_it(local: TestClient) -> None:
    said = local.get("/admin/v1/alerts").json()
    assert [(each["tenant"], each["state"]) for each in said["alerts"]] == [
        ("support", "firing"),
        ("research", "firing"),
        ("", "firing"),
        ("", "resolved"),
    ]
    first = said["alerts"][0]
    assert (first["id"], first["name"], first["severity"], first["pool"]) == (OWN.id, "budget_soft", "warning", "main")
    assert (first["since_ns"], first["fired_ns"], first["ended_ns"]) == (NOW - 5, NOW, None)
    assert first["advice"].endswith(".")
    assert [(each["name"], each["kind"], each["tenant"]) for each in said["channels"]] == [
        ("ops", "webhook", ""),
        ("team", "slack", "support"),
    ]


def test_a_tenant_sees_its_own(local: TestClient) -> None:
    said = local.get("/admin/v1/alerts", headers=OF_SUPPORT).json()
    assert [each["id"] for each in said["alerts"]] == [OWN.id]
    assert [each["name"] for each in said["channels"]] == ["team"]


def test_a_silence_is_for_all_channels_or_for_the_tenants_own(local: TestClient, product: FakeOperations) -> None:
    until = {"until_ns": NOW + NS_PER_HOUR}
    own = local.post(f"/admin/v1/alerts/{OWN.id}/silence", json=until, headers=OF_SUPPORT)
    assert own.json() == {"id": OWN.id, "tenant": "support", **until, "by": "key:k7"}
    every = local.post(f"/admin/v1/alerts/{SCALED.id}/silence", json=until)
    assert every.json()["tenant"] == ""
    assert product.store.silences() == tuple(
        sorted(
            (
                Silence(OWN.id, "support", NOW + NS_PER_HOUR, "key:k7"),
                Silence(SCALED.id, "", NOW + NS_PER_HOUR, "local"),
            ),
            key=lambda each: each.alert,
        )
    )
    shown = {each["id"]: each["silenced_until_ns"] for each in local.get("/admin/v1/alerts").json()["alerts"]}
    assert shown[SCALED.id] == NOW + NS_PER_HOUR
    assert shown[OWN.id] is None  # the platform is told still
    (mine,) = local.get("/admin/v1/alerts", headers=OF_SUPPORT).json()["alerts"]
    assert (mine["silenced_until_ns"], mine["silenced_by"]) == (NOW + NS_PER_HOUR, "key:k7")


def test_who_silenced_it_for_everybody_a_tenant_is_not_told(local: TestClient) -> None:
    local.post(f"/admin/v1/alerts/{OWN.id}/silence", json={"until_ns": NOW + NS_PER_HOUR})
    (mine,) = local.get("/admin/v1/alerts", headers=OF_SUPPORT).json()["alerts"]
    assert (mine["silenced_until_ns"], mine["silenced_by"]) == (NOW + NS_PER_HOUR, "")


def test_a_silence_is_ended_early_by_who_made_it(local: TestClient, product: FakeOperations) -> None:
    path = f"/admin/v1/alerts/{OWN.id}/silence"
    for headers in ({}, OF_SUPPORT):
        local.post(path, json={"until_ns": NOW + NS_PER_HOUR}, headers=headers)
    ended = local.delete(path, headers=OF_SUPPORT)
    assert ended.json() == {"id": OWN.id, "tenant": "support", "until_ns": NOW, "by": "key:k7"}
    assert product.store.silences() == (Silence(OWN.id, "", NOW + NS_PER_HOUR, "local"),)
    again = local.delete(path, headers=OF_SUPPORT)  # what the platform silenced is not a tenant's to end
    assert (again.status_code, again.json()["error"]["message"]) == (
        404,
        "tenant support has not silenced this alert, so there is nothing to end",
    )
    assert local.delete(path).json()["tenant"] == ""
    assert product.store.silences() == ()
    assert local.delete(path).json()["error"]["message"].startswith("the platform has not silenced this alert")
    assert all(each["silenced_until_ns"] is None for each in local.get("/admin/v1/alerts").json()["alerts"])


@pytest.mark.parametrize("until_ns", [0, NOW, NOW + 32 * 24 * NS_PER_HOUR])
def test_a_silence_has_an_end_that_comes(until_ns: int, local: TestClient) -> None:
    answer = local.post(f"/admin/v1/alerts/{OWN.id}/silence", json={"until_ns": until_ns})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "until_ns")


def test_what_is_foreign_is_as_what_there_is_not(local: TestClient) -> None:
    until = {"until_ns": NOW + 1}
    foreign = local.post(f"/admin/v1/alerts/{FOREIGN.id}/silence", json=until, headers=OF_SUPPORT)
    none = local.post("/admin/v1/alerts/nothing/silence", json=until, headers=OF_SUPPORT)
    assert foreign.status_code == none.status_code == 404
    assert foreign.json() == none.json()


def test_what_is_forgotten_once_it_was_decided_is_silenced_for_nobody(product: FakeOperations) -> None:
    who = Who(product.callers[b"Bearer support"], Scope(frozenset({"support"})))
    gone, until = alerts.ByAlert("gone"), NewSilence(NOW + NS_PER_HOUR)
    for asked in (alerts.silence(product, gone, until, who), alerts.end_silence(product, gone, who)):
        with pytest.raises(NotFoundError, match="there is no alert of this id"):
            asyncio.run(asked)
    assert product.store.silences() == ()


def test_a_channel_is_tested_by_the_platform(local: TestClient, product: FakeOperations) -> None:
    assert local.post("/admin/v1/alerts/test", json={"channel": "ops"}).json() == {"channel": "ops"}
    assert [letter.channel for letter in product.courier.letters] == ["ops"]
    product.courier.refuses = "it answers 500"
    answer = local.post("/admin/v1/alerts/test", json={"channel": "ops"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        503,
        "channel ops did not take it: it answers 500",
    )
    (ops, _) = local.get("/admin/v1/alerts").json()["channels"]
    assert (ops["failing_since_ns"], ops["error"]) == (NOW, "it answers 500")
    answer = local.post("/admin/v1/alerts/test", json={"channel": "nobody"})
    assert "there is no channel 'nobody'; there is ops, team" in answer.json()["error"]["message"]
    assert local.post("/admin/v1/alerts/test", json={"channel": "team"}, headers=OF_SUPPORT).status_code == 403
