"""Readers of traces on small samples of each format, and on the whole files where they are at hand."""

import gzip
import os
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from commonpool.core.model import NS_PER_S, Job, Outcome, Request, TokenSource, UsageRecord
from commonpool.simulator.traces import MONDAY_NS, Target, TraceError, read
from commonpool.simulator.workload import Workload

TARGET = Target("m", "main", "interactive", tiers={"b": "batch"}, weights={"a": 3, "b": 1})
TRACES = Path(os.environ.get("COMMONPOOL_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
S = NS_PER_S


def sample(tmp_path: Path, *lines: str, name: str = "trace", target: Target = TARGET, **more: object) -> Workload:
    path = tmp_path / name
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return read(path, target, **more)  # type: ignore[arg-type]


def test_azure_keeps_its_date_and_is_split_by_weight(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:15:46.{n:07d},374,44" for n in range(400)]
    work = sample(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", *rows)
    first = work.arrivals[1]
    assert first.at_ns == 1_700_158_546 * S + 100
    assert (first.tokens_in, first.tokens_out, first.task.id) == (374, 44, "r2")
    by_b = [x.task for x in work.arrivals if x.task.tenant == "b"]
    assert 70 < len(by_b) < 130
    assert {task.tier for task in by_b} == {"batch"}
    assert work.tenants == ("a", "b")


def test_a_split_depends_on_its_seed_alone(tmp_path: Path) -> None:
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", *["2023-11-16 18:15:46,1,1"] * 50]
    assert sample(tmp_path, *rows, seed=1) == sample(tmp_path, *rows, seed=1)
    assert sample(tmp_path, *rows, seed=1) != sample(tmp_path, *rows, seed=2)


def test_mooncake_counts_milliseconds_and_its_first_line_is_a_record(tmp_path: Path) -> None:
    work = sample(
        tmp_path,
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}',
        '{"timestamp": 1500, "input_length": 1, "output_length": 2, "hash_ids": []}',
    )
    assert [(x.at_ns - MONDAY_NS, x.tokens_in, x.tokens_out) for x in work.arrivals] == [
        (0, 6758, 500),
        (S * 3 // 2, 1, 2),
    ]


def test_a_trace_with_tenants_keeps_them(tmp_path: Path) -> None:
    rows = ["arrival_s,tenant,input_tokens,output_tokens", "0.115,support,38,1", "", "3600,b,7,9"]
    work = sample(tmp_path, *rows, name="day.csv.gz")
    assert [(x.at_ns - MONDAY_NS, x.task.tenant, x.task.tier) for x in work.arrivals] == [
        (115_000_000, "support", "interactive"),
        (3600 * S, "b", "batch"),
    ]
    request = work.arrivals[0].task
    assert isinstance(request, Request)
    assert (request.model, request.tokens_in, request.tokens_out_max) == ("m", 38, None)


def test_demand_becomes_poisson_arrivals_with_its_means(tmp_path: Path) -> None:
    header = "window_start_s,tenant,requests_per_s,mean_input_tokens,mean_output_tokens"
    rows = ["0,a,5,1000,50", "0,b,0,0,0", "600,a,0,1000,50", "1200,a,10,1000,50"]
    work = sample(tmp_path, header, *rows)
    at = [(x.at_ns - MONDAY_NS) // (600 * S) for x in work.arrivals]
    assert (2700 < at.count(0) < 3300, at.count(1), 5700 < at.count(2) < 6300) == (True, 0, True)
    assert 950 < sum(x.tokens_in for x in work.arrivals) / len(at) < 1050
    assert 47 < sum(x.tokens_out for x in work.arrivals) / len(at) < 53
    assert work == sample(tmp_path, header, *rows)
    assert work != sample(tmp_path, header, *rows, seed=1)


def test_philly_jobs_are_sorted_and_what_is_no_work_is_counted(tmp_path: Path) -> None:
    work = sample(
        tmp_path,
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:01:55,66.5,2,66.0,11cb48",
        "2017-10-09 06:13:03,2951.0,1,2951.0,6214e9",
        "2017-10-09 06:13:03,2951.0,0,2951.0,6214e9",
        "2017-10-09 06:13:03,0,1,2951.0,6214e9",
    )
    jobs = [x.task for x in work.arrivals if isinstance(x.task, Job)]
    assert [(job.tenant, job.milli_gpu, job.pool) for job in jobs] == [
        ("6214e9", 1000, "main"),
        ("11cb48", 2000, "main"),
    ]
    assert [x.duration_ns for x in work.arrivals] == [2951 * S, 66_500_000_000]
    assert work.arrivals[0].at_ns == 1_507_529_583 * S
    assert work.dropped == {"asks for no GPU": 1, "takes no time": 1}


def test_openb_pods_ask_for_whole_and_part_gpus_and_the_rest(tmp_path: Path) -> None:
    work = sample(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "openb-pod-0000,12000,16384,2,1000,,LS,Running,0,100,0",
        "openb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Running,7,27,427061",
        "openb-pod-0002,6000,12288,0,0,,LS,Running,7,27,",
        "openb-pod-0003,6000,12288,1,460,,LS,Pending,7,7,",
    )
    jobs = [x.task for x in work.arrivals if isinstance(x.task, Job)]
    assert [job.milli_gpu for job in jobs] == [2000, 460]
    assert jobs[1].resources == {"cpu_milli": 6000, "memory_mib": 12288}
    assert [x.duration_ns // S for x in work.arrivals] == [100, 20]
    assert work.dropped == {"asks for no GPU": 1, "takes no time": 1}


def record(request_id: str, attempt: int, outcome: Outcome, **more: object) -> UsageRecord:
    fields: dict[str, object] = {
        name: 0 for name in UsageRecord.__struct_fields__ if not name.startswith(("loan", "wait"))
    }
    fields |= dict.fromkeys(("app", "cost_center", "model", "version", "tier", "pool", "replica", "reason"), "")
    fields |= {"request_id": request_id, "attempt": attempt, "outcome": outcome, "tenant": "a, b", "endpoint": "chat"}
    fields |= {"token_source": TokenSource.ENGINE, "arrived_ns": attempt, "wait_ns": 0, "stream": False}
    return UsageRecord(**(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_was_recorded_is_asked_for_again_once_each(tmp_path: Path, form: str) -> None:
    records = [
        record("one", 1, Outcome.FAILED),
        record("one", 2, Outcome.COMPLETED, tokens_in=5, tokens_out=6, arrived_ns=9),
        record("two", 1, Outcome.REFUSED),
        record("job", 1, Outcome.COMPLETED, endpoint="job", run_ns=77, milli_gpu=2000, arrived_ns=3),
    ]
    named = [{name: getattr(r, name) for name in UsageRecord.__struct_fields__} for r in records]
    if form == "json":
        lines = [msgspec.json.encode(one).decode() for one in named]
    else:
        columns = [name for name in UsageRecord.__struct_fields__ if name not in {"loans", "waits"}]
        lines = [",".join(columns), *(",".join(f'"{one[name]}"' for name in columns) for one in named)]
    job, request = sample(tmp_path, *lines).arrivals
    assert isinstance(job.task, Job)
    assert (job.at_ns, job.duration_ns, job.task.milli_gpu) == (3, 77, 2000)
    assert (request.at_ns, request.tokens_in, request.tokens_out, request.task.tenant) == (9, 5, 6, "a, b")
    assert sum(sample(tmp_path, *lines).dropped.values()) == 1


def test_speed_divides_the_gaps_and_nothing_else(tmp_path: Path) -> None:
    rows = ["arrival_s,tenant,input_tokens,output_tokens", "10,a,1,1", "13,a,1,1", "20,a,1,1"]
    work = sample(tmp_path, *rows, speed=Fraction(3, 2))
    assert [x.at_ns - MONDAY_NS for x in work.arrivals] == [10 * S, 12 * S, 10 * S + 20 * S // 3]


def test_limit_keeps_the_earliest(tmp_path: Path) -> None:
    rows = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    rows += [f"2017-10-09 0{9 - n}:00:00,60,1,60,c" for n in range(9)]
    assert [x.task.id for x in sample(tmp_path, *rows, limit=2).arrivals] == ["j9", "j8"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["sn,cpu_milli,memory_mib,gpu,model"], "line 1: 'sn,cpu_milli"),
        ([], "line 1: '' begins no known format"),
        (["arrival_s,tenant,input_tokens,output_tokens", "1,a,2"], "line 2: .*4 values are expected, '1,a,2' has 3"),
        (["arrival_s,tenant,input_tokens,output_tokens", "1,a,2,3", "1,a,-2,3"], "line 3: .*-2 is below zero"),
        (["TIMESTAMP,ContextTokens,GeneratedTokens", "yesterday,1,1"], "line 2: .*yesterday"),
        (['{"timestamp": 0, "input_length": 1, "output_length": 1}', '{"timestamp": "x"}'], "line 2: .*timestamp"),
    ],
)
def test_an_error_names_file_line_and_value(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        sample(tmp_path, *lines)


def test_files_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere: cannot be read: No such file"):
        read(tmp_path / "nowhere", TARGET)
    whole = gzip.compress(b"arrival_s,tenant,input_tokens,output_tokens\n" + b"1,a,2,3\n" * 1000)
    (tmp_path / "cut.gz").write_bytes(whole[:-20])
    with pytest.raises(TraceError, match="damaged after line"):
        read(tmp_path / "cut.gz", TARGET)


def test_a_trace_without_tenants_asks_for_some(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="names no tenants"):
        sample(
            tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,1,1", target=Target("m", "p", "t")
        )


@pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not at hand")
@pytest.mark.parametrize(
    ("name", "count", "tenants"),
    [
        ("azure_llm_2023_conv.csv", 19_366, 2),
        ("mooncake_conversation.jsonl", 12_031, 2),
        ("servegen_tenants_1day.csv.gz", 346_032, 8),
        ("philly_jobs.csv.gz", 82_247, 15),
        ("openb_pod_list_default.csv", 8_152, 2),
        ("openb_pod_list_gpushare40.csv", 8_152, 2),
    ],
)
def test_a_public_trace_is_read_whole(name: str, count: int, tenants: int) -> None:
    work = read(TRACES / name, TARGET)
    assert len(work.arrivals) + sum(work.dropped.values()) == count
    assert len(work.tenants) == tenants
    assert work.arrivals[-1].at_ns > work.arrivals[0].at_ns


@pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not at hand")
def test_public_demand_gives_its_rates() -> None:
    name = "servegen_tenants_2weeks_demand.csv.gz"
    with gzip.open(TRACES / name, "rt") as file:
        rates = [float(line.split(",")[2]) for line in file.readlines()[1:] if int(line.split(",")[0]) < 3600]
    expected = sum(rates) * 600
    work = read(TRACES / name, TARGET, limit=20_000)
    assert len(work.arrivals) == 20_000
    first_hour = sum(x.at_ns < MONDAY_NS + 3600 * S for x in work.arrivals)
    assert abs(first_hour - expected) < 5 * expected**0.5
