"""Given a product, when keys are made and ended from the command line, then a secret is shown once, alone."""

import json
import re

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.core.model import Limits
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving


def test_life_of_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    with serving(product) as url:
        assert run(["keys", "create", "--tenant", "support", "--note", "desk", "--control", url]) == ExitCode.OK
        out, err = capsys.readouterr()
        assert re.fullmatch(r"cp_[0-9A-Za-z]{10}_[0-9A-Za-z]+\n", out)
        assert "keep it now, it is not shown again" in err
        (key,) = product.store.list_keys()

        assert run(["keys", "list", "--control", url]) == ExitCode.OK
        listed = capsys.readouterr().out
        assert out.strip() not in listed
        assert re.search(rf"{key.key_id} +data +support +default +– +all .* live +desk", listed)

        assert run(["keys", "rotate", key.key_id, "--overlap", "10m", "--json", "--control", url]) == ExitCode.OK
        new = json.loads(capsys.readouterr().out)
        assert new["key"].startswith("cp_")
        assert {key.expires_ns for key in product.store.list_keys()} == {None, NOW + 600 * 10**9}

        assert run(["keys", "revoke", new["about"]["id"], "--control", url]) == ExitCode.OK
        assert "is revoked since 2027-01-15 08:00:00Z" in capsys.readouterr().out
        assert run(["keys", "list", "--json", "--control", url]) == ExitCode.OK
        revoked = [key["revoked_ns"] for key in json.loads(capsys.readouterr().out)["keys"]]
        assert sorted(revoked, key=str) == [NOW, None]


def test_options_reach_the_product(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    product = FakeOperations()
    more = ["--app", "papers", "--tier", "batch", "--model", "echo", "--expires", "3650d", "--only-tier", "batch"]
    more += ["--network", "10.0.0.0/8", "--network", "fd00::/8"]
    more += ["--limit", "requests=60/min", "--limit", "concurrent_requests=2", "--limit", "run_time=30s"]
    with serving(product) as url:
        assert run(["keys", "create", "--tenant", "research", *more, "--control", url]) == ExitCode.OK
        admin = ["--scope", "admin", "--tenant", "research", "--role", "tenant-admin"]
        assert run(["keys", "create", *admin, "--control", url]) == ExitCode.OK
        capsys.readouterr()
        assert run(["keys", "list", "--control", url]) == ExitCode.OK
    by_scope = {key.scope: key for key in product.store.list_keys()}
    data = by_scope["data"]
    assert (data.app, data.tier, data.models) == ("papers", "batch", ("echo",))
    assert (data.tiers, data.networks) == (("batch",), ("10.0.0.0/8", "fd00::/8"))
    assert data.limits == Limits(concurrent_requests=2, requests_per_minute=60, run_ns_max=30 * 10**9)
    assert data.expires_ns is not None
    assert (by_scope["admin"].tenant, by_scope["admin"].role) == ("research", "tenant-admin")
    listed = capsys.readouterr().out
    assert "batch 10.0.0.0/8 fd00::/8 concurrent_requests=2 requests=60/min run_time=30s" in " ".join(listed.split())
    assert "admin: tenant-admin" in listed


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("requests", "--limit: 'requests' is no limit"),
        ("request=5/min", "did you mean requests?"),
        ("requests=5", '--limit: "5" is not a rate'),
        ("requests=0/min", "must be more than zero"),
    ],
)
def test_a_limit_that_is_none(capsys: pytest.CaptureFixture[str], limit: str, says: str) -> None:
    options = ["--tenant", "research", "--limit", limit, "--control", "http://127.0.0.1:1"]
    assert run(["keys", "create", *options]) == ExitCode.USAGE
    assert says in " ".join(capsys.readouterr().err.split())


def test_what_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["keys", "create", "--tenant", "suport", "--control", url]) == ExitCode.USAGE
        assert run(["keys", "revoke", "nobody", "--control", url]) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "there is support, research" in err
    assert "nobody" in err


def test_whole_key_in_place_of_its_id_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "revoke", "cp_abcdefghij_secret", "--control", "http://127.0.0.1:1"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "abcdefghij" in err
    assert "secret" not in err


def test_bad_duration() -> None:
    assert (
        run(["keys", "create", "--tenant", "a", "--expires", "90", "--control", "http://127.0.0.1:1"]) == ExitCode.USAGE
    )
