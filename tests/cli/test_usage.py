"""Given records, when usage is asked for, then the tables add up as shown."""

import re
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from commonpool.api.wire import usage as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.usage import filters
from commonpool.simulator.traces import Target, read
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving
from tests.store.records import T0, loan, usage_record

GPU_MS = 10**9  # milli_gpu_ns in a thousandth of a GPU second
EVER = ["--since", "2024-01-01"]


@pytest.fixture
def product() -> FakeOperations:
    product = FakeOperations()
    third = GPU_MS // 3
    product.store.add_usage(
        [
            usage_record("r1", tenant="a", model="m", milli_gpu_ns=third, tokens_in=1000, loans=(loan("b"),)),
            usage_record("r2", tenant="b", model="m", milli_gpu_ns=third),
            usage_record("r3", tenant="c", model="n", milli_gpu_ns=GPU_MS - 2 * third),
        ]
    )
    return product


def rows(out: str) -> list[list[str]]:
    """The cells of a table: what is parted by two spaces or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.strip()]


def test_columns_add_up_as_shown(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["usage", "--by", "tenant,model", *EVER, "--control", url]) == ExitCode.OK
    head, _, *body, total = rows(capsys.readouterr().out)
    assert head[:3] == ["tenant", "model", "requests"]
    assert [row[:3] for row in body] == [["a", "m", "1"], ["b", "m", "1"], ["c", "n", "1"]]
    # Each is a third of a thousandth: rounded one by one, they would add up to nothing.
    gpu = head.index("gpu s")
    assert sum(Decimal(row[gpu]) for row in body) == Decimal("0.001")
    assert total[0] == "total"
    assert total[gpu - 1] == "0.001"  # the total has no model
    costs = [Decimal(row[-1]) for row in body]
    assert sum(costs) == Decimal(total[-1])


def test_filters_and_period_reach_the_product(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--where", "tenant=a", "--where", "tenant=b", "--where", "model=m"]
    with serving(product) as url:
        assert run(["usage", "--json", *EVER, "--until", "2024-01-02", *where, "--control", url]) == ExitCode.OK
    table = msgspec.json.decode(capsys.readouterr().out, type=wire.UsageTable)
    assert (table.since_ns, table.until_ns) == (T0, T0 + 86_400 * 10**9)
    assert [row.group for row in table.rows] == [("a",), ("b",)]


def test_loans_matrix(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    lent = (loan("", "c", 1000, 2 * 10**9), loan("a", "c", 500, 10**9))
    product.store.add_usage([usage_record("r4", tenant="c", loans=lent)])
    with serving(product) as url:
        assert run(["usage", "--loans", *EVER, "--where", "lender=research", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "nobody lent to anybody\n"
        assert run(["usage", "--loans", *EVER, "--control", url]) == ExitCode.OK
    out = capsys.readouterr().out
    assert rows(out)[0] == ["lender \\ borrower", "a", "c", "total gpu s"]
    assert ["(unowned)", "2.000", "2.000"] in rows(out)
    assert ["a", "0.500", "0.500"] in rows(out)
    assert rows(out)[-1] == ["total gpu s", "2.500", "2.500"]


def test_open_loans_are_those_of_now(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["usage", "--loans", "--open", "--where", "borrower=research", "--control", url]) == ExitCode.OK
        (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "research" in line]
        assert row[:5] == ["support", "research", "1.5", "6", "0"]
        assert run(["usage", "--loans", "--open", "--where", "borrower=support", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "nobody lends to anybody\n"


def test_no_loans(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeOperations()) as url:
        assert run(["usage", "--loans", *EVER, "--control", url]) == ExitCode.OK
    assert capsys.readouterr().out == "nobody lent to anybody\n"


def test_unknown_group_is_wrong_usage(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(product) as url:
        assert run(["usage", *EVER, "--by", "colour", "--control", url]) == ExitCode.USAGE
        assert run(["usage", *EVER, "--where", "colour=red", "--control", url]) == ExitCode.USAGE
    err = capsys.readouterr().err.splitlines()
    assert "'colour'" in err[0]
    assert "cost_center" in err[0]
    assert "known here: " in err[1]


@pytest.mark.parametrize(
    "arguments",
    [["--where", "tenant"], ["--where", "=x"], ["--since", "yesterday"], ["--until", "1x"], ["--loans", "--by", "app"]],
)
def test_wrong_usage_is_found_before_anything_is_asked(arguments: list[str]) -> None:
    assert run(["usage", *arguments, "--control", "http://127.0.0.1:1"]) == ExitCode.USAGE


def test_filter_values_may_have_an_equals_sign() -> None:
    assert filters(["cost_center=a=b", "tenant = x"]) == {"cost_center": ["a=b"], "tenant": ["x"]}


def test_records_are_lines_that_a_simulation_reads(
    product: FakeOperations, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving(product) as url:
        assert run(["usage", "--records", *EVER, "--control", url]) == ExitCode.OK
        trace = tmp_path / "usage.jsonl"
        trace.write_text(capsys.readouterr().out)
        assert run(["usage", "--records", "--by", "tenant", "--control", url]) == ExitCode.USAGE
    work = read(trace, Target("m", "main", "interactive"))
    assert [(arrival.task.tenant, arrival.tokens_in) for arrival in work.arrivals][:1] == [("a", 1000)]
    assert len(work.arrivals) == 3
