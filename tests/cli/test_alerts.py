"""Given a product in which something is wrong, when it is asked from the command line, then that is told."""

import json
import time

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.firing import Episode
from commonpool.store.alerts import KeptEpisode
from commonpool.store.memory import MemoryStore
from tests.api.fakes import CONFIG, NOW, FakeOperations, sources
from tests.cli.serving import serving
from tests.core.troubles import AWAY, SCALED

CHANNELS = 'alerts: {channels: {ops: {kind: webhook, url: "http://127.0.0.1:9/"}}}\n'


def product(*found: Episode) -> FakeOperations:
    store = MemoryStore()
    store.save_alerts(map(KeptEpisode, found))
    here = FakeOperations(store)
    here.configure(sources(CONFIG + CHANNELS))
    return here


def test_what_is_wrong_is_listed_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    over = Episode(AWAY, NOW - 9, NOW - 9, NOW - 9, ended_ns=NOW - 1)
    here = product(Episode(SCALED, NOW, NOW, NOW), over)
    here.courier.refuses = "it is away"
    with serving(here) as url:
        assert run(["alerts", "test", "ops", "--control", url]) == ExitCode.PRODUCT_ERROR
        assert "channel ops did not take it: it is away" in capsys.readouterr().err
        assert run(["alerts", "list", "--control", url]) == ExitCode.OK
        said = capsys.readouterr().out
        assert said.splitlines()[2].split() == [
            SCALED.id, "guarantees_scaled", "warning", "firing", "–", "pool", "main", "2027-01-15", "08:00:00Z", "–",
        ]  # fmt: skip
        assert f"{SCALED.id}: More is guaranteed than is there. Bring the missing devices back" in said
        assert "channel ops cannot be told since 2027-01-15 08:00:00Z: it is away" in said
        assert "journal_away" not in said
        assert run(["alerts", "list", "--resolved", "--json", "--control", url]) == ExitCode.OK
        assert [each["name"] for each in json.loads(capsys.readouterr().out)["alerts"]] == [
            "guarantees_scaled",
            "journal_away",
        ]


def test_where_nothing_is_wrong_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product()) as url:
        assert run(["alerts", "list", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "nothing is wrong\n"
        assert run(["alerts", "test", "ops", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "channel ops has taken it\n"


def test_an_alert_is_silenced_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    here = product(Episode(SCALED, NOW, NOW, NOW))
    here.now = time.time_ns()
    with serving(here) as url:
        assert run(["alerts", "silence", SCALED.id, "--for", "2h", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out.startswith(f"nobody is told of alert {SCALED.id} until ")
        assert run(["alerts", "silence", "nothing", "--for", "2h", "--control", url]) == ExitCode.FAILED
        assert "there is no alert of this id" in capsys.readouterr().err
        assert run(["alerts", "silence", SCALED.id, "--for", "soon", "--control", url]) == ExitCode.USAGE
        (silence,) = here.store.silences()
        assert silence.alert == SCALED.id
        capsys.readouterr()
        assert run(["alerts", "unsilence", SCALED.id, "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == f"all channels are told of alert {SCALED.id} again\n"
        assert run(["alerts", "unsilence", SCALED.id, "--control", url]) == ExitCode.FAILED
        assert "the platform has not silenced this alert" in capsys.readouterr().err
    assert here.store.silences() == ()
