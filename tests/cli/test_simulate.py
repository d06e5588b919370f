"""Given a configuration and a trace, `simulate` compares policies; what cannot be simulated is said in a sentence."""

import json
import re
from pathlib import Path

import pytest

from commonpool.cli import run
from commonpool.cli import simulate as command
from commonpool.cli.exits import ExitCode
from commonpool.simulator.policies import POLICIES
from commonpool.simulator.presets import PRESETS
from tests.api.fakes import CONFIG

NEAR = "arrival_s,tenant,input_tokens,output_tokens\n" + "".join(
    f"{n // 10}.{n % 10},{'support' if n % 3 else 'research'},{200 + n},{1 + n % 90}\n" for n in range(120)
)
FAR = NEAR.replace("research", "stranger")
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{n:02d}.5000000,{300 + n},{40 + n}\n" for n in range(50)
)
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-09 07:{n:02d}:00,{600.0 + n},{n % 3},{600.0},{'abc'[n % 3]}1\n" for n in range(60)
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "commonpool.yaml"
    file.write_text(CONFIG)
    return file


def written(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text)
    return file


def simulate(config: Path, trace: Path, *more: str) -> int:
    return run(["simulate", "--config", str(config), "--trace", str(trace), *more])


def rows(out: str, first: str) -> list[list[str]]:
    """The cells of the table whose first column has this title."""
    lines = out.splitlines()
    top = next(at for at, line in enumerate(lines) if line.startswith(first))
    table = [re.split(r"\s{2,}", line.strip()) for line in lines[top + 2 :]]
    return table[: next((at for at, row in enumerate(table) if row == [""]), len(table))]


def test_the_help_names_what_there_is() -> None:
    assert tuple(POLICIES) == command.POLICIES
    assert tuple(PRESETS) == command.PRESETS


def test_policies_are_compared_and_the_report_is_written(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert simulate(config, written(tmp_path, NEAR), "--out", str(folder)) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "120 requests of trace.csv in 11.9 s, on 4 gpu"
    assert [row[0] for row in rows(out, "policy")] == ["fifo", "static", "commonpool"]
    assert [row[:3] for row in rows(out, "tenant (commonpool)")] == [["research", "1", "40"], ["support", "2", "80"]]
    assert {file.name for file in folder.iterdir()} == {"report.html", "report.json", "summary.csv", "tenants.csv"}
    assert str(folder / "report.html") in out


def test_the_same_seed_gives_the_same_bytes(config: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, AZURE)  # without tenants: they are drawn
    for name in ("one", "two"):
        assert simulate(config, trace, "--policy", "all", "--seed", "7", "--out", str(tmp_path / name)) == ExitCode.OK
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    assert [each["policy"] for each in report["policies"]] == [
        "fifo",
        "static",
        "priority",
        "preempt",
        "vtc",
        "commonpool",
    ]
    assert report["settings"]["seed"] == "7"
    assert str(tmp_path) not in json.dumps(report)


def test_tenants_of_the_trace_are_made_with_guarantees_by_demand(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = written(tmp_path, FAR)
    assert simulate(config, trace) == ExitCode.FAILED
    said = capsys.readouterr().err
    assert "trace.csv has tenants that the configuration lacks: stranger." in said
    assert "p60" in said
    assert simulate(config, trace, "--guarantees", "p60", "--policy", "commonpool") == ExitCode.OK
    table = rows(capsys.readouterr().out, "tenant (commonpool)")
    assert [row[0] for row in table] == ["stranger", "support"]
    assert sum(float(row[1]) for row in table) == 4


def test_jobs_have_the_pool_for_themselves(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = written(tmp_path, PHILLY)
    assert simulate(config, trace, "--guarantees", "p60", "--policy", "fifo", "--speed", "0.5") == ExitCode.OK
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("40 jobs of trace.csv in ")
    assert out[1] == "left out: 20, asks for no GPU"
    assert rows("\n".join(out), "policy")[0][0] == "fifo"


def test_limit_and_speed(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = written(tmp_path, NEAR)
    assert simulate(config, trace, "--limit", "11", "--speed", "2", "--policy", "fifo") == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[0] == "11 requests of trace.csv in 0.50 s, on 4 gpu"


def test_generated_tenants_need_no_trace(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--config", str(config), "--synthetic", "120s", "--policy", "vtc"]
    assert run([*arguments, "--preset", "72b-a100"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert " requests of generated in " in out.splitlines()[0]
    assert [row[0] for row in rows(out, "tenant (vtc)")] == ["research", "support"]


def test_replicas_follow_demand_within_bounds(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--config", str(config), "--synthetic", "600s", "--policy", "fifo", "--preset", "7b-h100"]
    assert run([*arguments, "--replicas", "1-3"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "held gpu h" in out
    held, starts = rows(out, "policy")[0][-2:]
    assert 1 <= int(starts) <= 3
    assert 0.1 < float(held) < 0.6  # ten minutes of one replica to ten of three
    assert run([*arguments, "--replicas", "1-9"]) == ExitCode.FAILED
    assert "Allow at most 4." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "lottery"], "there is no policy 'lottery'; there are fifo, static, priority, preempt, vtc, "),
        (["--preset", "1t"], "there is no preset '1t'; there are 7b-a100, "),
        (["--guarantees", "p99"], "--guarantees 'p99' is neither config nor p60"),
        (["--replicas", "5-2"], "--replicas '5-2' is not a range; write it like 1-8"),
        (["--speed", "0"], "--speed '0' is not a factor above zero; write it like 2 or 0.5"),
        (["--speed", "fast"], "--speed 'fast' is not a factor above zero"),
        (["--synthetic", "1h"], "give either --trace FILE or --synthetic DURATION"),
    ],
)
def test_wrong_usage(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert simulate(config, written(tmp_path, NEAR), *arguments) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert err.startswith(f"commonpool: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give either --trace FILE or --synthetic DURATION"),
        (["--synthetic", "soon"], "--synthetic: "),
        (["--synthetic", "1h", "--speed", "2"], "--speed and --limit are about a trace"),
    ],
)
def test_wrong_usage_without_a_trace(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run(["simulate", "--config", str(config), *arguments]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"commonpool: {sentence}")


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        ("x,y\n1,2\n", [], "trace.csv, line 1: "),
        (NEAR + "x,support,1,1\n", [], "trace.csv, line 122: "),
        ("arrival_s,tenant,input_tokens,output_tokens\n", [], "has no arrivals"),
        (NEAR, ["--model", "oracle"], "has no model oracle; it has echo"),
    ],
)
def test_what_cannot_be_simulated(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], sentence: str
) -> None:
    assert simulate(config, written(tmp_path, text), *arguments) == ExitCode.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_a_preset_that_is_larger_than_the_pool(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG.replace("4_gpu", "3_gpu").replace("gpu: 2_gpu", "gpu: 1_gpu"))
    assert simulate(config, written(tmp_path, NEAR), "--preset", "72b-h100") == ExitCode.FAILED
    assert "Name a smaller preset" in capsys.readouterr().err


def test_files_that_are_not_there(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(config, tmp_path / "no.csv") == ExitCode.FAILED
    assert "no.csv: cannot be read" in capsys.readouterr().err
    assert simulate(tmp_path / "no.yaml", written(tmp_path, NEAR)) == ExitCode.INVALID_CONFIG
    assert "does not exist" in capsys.readouterr().err
    blocked = written(tmp_path, NEAR)
    assert simulate(config, blocked, "--policy", "fifo", "--out", str(blocked)) == ExitCode.USAGE
    assert f"--out {blocked} is a file" in capsys.readouterr().err
