"""Given a past, `advise` makes a plan that can be applied and `compare` the case for sharing; too little is said so."""

import json
import random
import time
from pathlib import Path

import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.config import diff, load
from commonpool.core.model import NS_PER_HOUR
from tests.api.fakes import CONFIG, FakeOperations
from tests.cli.serving import serving
from tests.store.records import usage_record

DAYS = 4


def trace() -> str:
    """research works by day and support by night: requests of 200 + 400 tokens, more than two at a time."""
    chance = random.Random(7)
    rows = []
    for hour in range(24 * DAYS):
        tenant = "research" if 8 <= hour % 24 < 20 else "support"
        rows += [(hour * 3600 + chance.random() * 3600, tenant) for _ in range(30)]
    lines = (f"{at:.3f},{tenant},200,400\n" for at, tenant in sorted(rows))
    return "arrival_s,tenant,input_tokens,output_tokens\n" + "".join(lines)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "commonpool.yaml"
    file.write_text(f"# ours\n{CONFIG}")
    return file


@pytest.fixture
def past(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(trace())
    return file


def test_the_plan_is_a_configuration_with_other_quotas_only(
    config: Path, past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan" / "commonpool.yaml"
    arguments = ["advise", "--trace", str(past), "--config", str(config), "--out", str(out)]
    assert run(arguments) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "learned from 2.0 d of trace.csv" in shown or "learned from 48.0 h of trace.csv" in shown
    assert f"bring it into force with `commonpool apply {out}`" in shown
    assert out.read_text().startswith("# ours\n")
    keys = {change.key.rpartition(".")[2] for change in diff(load(config), load(out))}
    assert keys <= {"guaranteed", "elastic_cap", "hard_cap", "state"}  # a relative path counts from the file's folder
    assert load(out).policy.tenants["support"].guaranteed < 2000


def test_every_alternative_is_tested_on_the_second_half(
    config: Path, past: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "--trace", str(past), "--config", str(config), "--json"]) == ExitCode.OK
    plan = json.loads(capsys.readouterr().out)
    assert plan["split_ns"] - plan["since_ns"] == pytest.approx(DAYS * 12 * NS_PER_HOUR, rel=0.01)
    (pool,) = plan["pools"]
    assert [each["name"] for each in pool["tested"]] == [
        "today",
        "static peaks",
        "static p95",
        "equal shares",
        "advised",
    ]
    assert pool["advice"]["enough"] < pool["advice"]["static"]
    counts = {tuple(tenant["tasks"] for tenant in each["tenants"]) for each in pool["tested"]}
    ((research, support),) = counts
    assert research + support == pytest.approx(DAYS * 12 * 30, abs=30)
    assert all(each["sentence"].endswith(".") for each in pool["advice"]["proposals"])


def test_the_departments_see_what_cards_of_their_own_would_cost(
    config: Path, past: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "--trace", str(past), "--config", str(config), "--json"]) == ExitCode.OK
    (pool,) = json.loads(capsys.readouterr().out)
    departments = pool["departments"]
    assert [each["tenant"] for each in departments] == ["research", "support"]
    assert sum(each["own_milli_gpu"] for each in departments) == pool["milli_gpu"] == 4000
    costs = [sum(each[key] for each in departments) for key in ("cost_micro", "own_cost_micro")]
    assert costs[0] == pytest.approx(costs[1], abs=2)  # the same cards are paid either way
    assert run(["compare", "--trace", str(past), "--config", str(config)]) == ExitCode.OK
    assert "the departments would need" in capsys.readouterr().out


def test_too_little_is_said_in_one_sentence(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short.csv"
    short.write_text("".join(trace().splitlines(keepends=True)[:40]))
    assert run(["advise", "--trace", str(short), "--config", str(config)]) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "there is too little to learn from: 39 tasks within 1.3 h" in err
    assert err.count("\n") == 1


def test_a_trace_of_strangers_is_refused(config: Path, past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past.write_text(past.read_text().replace("research", "stranger"))
    assert run(["compare", "--trace", str(past), "--config", str(config)]) == ExitCode.FAILED
    assert "the first of them stranger; add them to it" in capsys.readouterr().err


def test_the_plan_never_overwrites_what_is_included(
    config: Path, past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab.yaml").write_text("tenant: {guaranteed: 1_gpu}\n")
    config.write_text(f"{CONFIG}include: [lab.yaml]\n")
    arguments = ["advise", "--trace", str(past), "--config", str(config), "--out"]
    assert run([*arguments, str(tmp_path / "plan.yaml")]) == ExitCode.USAGE
    assert "name a file in another folder" in capsys.readouterr().err
    assert run([*arguments, str(tmp_path / "plan" / "commonpool.yaml")]) == ExitCode.OK
    assert load(tmp_path / "plan" / "commonpool.yaml").policy.tenants["lab"].guaranteed == 1000


def test_own_records_are_learned_from(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    hour = NS_PER_HOUR
    now = time.time_ns()
    product.store.add_usage(
        [
            usage_record(
                f"r{n}",
                tenant="support",
                model="echo",
                pool="main",
                arrived_ns=now - 48 * hour + n * hour // 4,
                run_ns=60 * 10**9,
                milli_gpu=500,
                milli_gpu_ns=500 * 60 * 10**9,
            )
            for n in range(180)
        ]
    )
    with serving(product) as url:
        assert run(["advise", "--json", "--window", "14d", "--control", url]) == ExitCode.OK
    plan = json.loads(capsys.readouterr().out)
    assert plan["source"] == "own records"
    assert {each["tenant"] for each in plan["pools"][0]["advice"]["proposals"]} == {"support"}
    assert {(each["kind"], each["about"]) for each in plan["findings"]} == {("low_use", "echo")}
