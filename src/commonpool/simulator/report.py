"""The report of a simulation: files for people and for programs. The same figures give the same bytes.

`report.json` has everything, `summary.csv` a row for each policy, `tenants.csv` one for each policy and tenant, and
`report.html` shows it, without anything from elsewhere.
"""

import csv
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.simulator import plots
from commonpool.simulator.figures import PPM, Figures, Outcomes, Part, Spread, ppm
from commonpool.simulator.plots import Range, Series, Tick

_NS_PER_DAY = 24 * NS_PER_HOUR
_MILLI_GPU_NS_PER_GPU_HOUR = 1000 * NS_PER_HOUR
_LENGTHS = [
    Tick(NS_PER_S // 100, "10 ms"),
    Tick(NS_PER_S // 10, "0.1 s"),
    Tick(NS_PER_S, "1 s"),
    Tick(10 * NS_PER_S, "10 s"),
    Tick(100 * NS_PER_S, "100 s"),
    Tick(1000 * NS_PER_S, "17 min"),
    Tick(10_000 * NS_PER_S, "2.8 h"),
    Tick(100_000 * NS_PER_S, "28 h"),
    Tick(1_000_000 * NS_PER_S, "12 d"),
    Tick(10_000_000 * NS_PER_S, "116 d"),
]
_UNITS = (
    ("d", _NS_PER_DAY, 2 * _NS_PER_DAY),
    ("h", NS_PER_HOUR, 100 * 60 * NS_PER_S),
    ("min", 60 * NS_PER_S, 100 * NS_PER_S),
)
_SHARES = [Tick(PPM * percent // 100, f"{percent} %") for percent in (0, 25, 50, 75, 100)]
_ALONG_STEPS = 6


class Report(msgspec.Struct, frozen=True):
    """What was simulated, and what came of it under each policy.

    `settings` are those that were chosen, as written; with the trace they are enough to get the same figures again.
    `tasks` are the words for what arrived. `dropped` counts what the trace had and a simulation cannot use.
    """

    workload: str
    tasks: str
    arrivals: int
    dropped: dict[str, int]
    start_ns: int
    end_ns: int
    settings: dict[str, str]
    policies: tuple[Outcomes, ...]


def write(report: Report, folder: Path) -> list[Path]:
    """Write the report into a folder, which is made where it is missing; return the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "report.html": html(report),
        "summary.csv": summary_csv(report),
        "tenants.csv": tenants_csv(report),
        "report.json": msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def summary_csv(report: Report) -> str:
    """A row for each policy; columns are named as in `report.json`, joined by `_`."""
    rows = []
    for outcomes in report.policies:
        row = {"policy": outcomes.policy, **_flat(outcomes.total)}
        del row["tenant"]
        for name in (
            "capacity_milli_gpu",
            "utilisation_ppm",
            "service_gap",
            "service_gap_end",
            "fragmentation_ppm",
        ):
            row[name] = getattr(outcomes, name)
        rows.append(row)
    return _csv(rows)


def tenants_csv(report: Report) -> str:
    """A row for each policy and tenant, likewise."""
    return _csv(
        [{"policy": outcomes.policy, **_flat(figures)} for outcomes in report.policies for figures in outcomes.tenants]
    )


def html(report: Report) -> str:
    """The page."""
    files = resources.files("commonpool.simulator") / "templates"
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(duration=duration, percent=percent, gpu_hours=gpu_hours, gpus=gpus)
    environment.globals.update(share=ppm)
    page = environment.from_string((files / "report.html").read_text("utf-8"))
    names = [outcomes.policy for outcomes in report.policies]
    return page.render(
        report=report,
        style=(files / "report.css").read_text("utf-8"),
        length_ns=report.end_ns - report.start_ns,
        legend=plots.legend(names),
        waits=_waits(report),
        use=_use(report),
        violations=_violations(report),
        loans=_loans(report),
    )


# -- numbers as people read them ---------------------------------------------------------------------------------------


def duration(ns: int) -> str:
    """`0 s`, `0.42 s`, `3.1 min`, `2.4 h`, `1.2 d`; what is not zero is never shown as zero."""
    if ns and ns < NS_PER_S // 100:
        return "<0.01 s"
    if ns < 10 * NS_PER_S:
        return f"{_rounded(ns * 100, NS_PER_S, 100)} s" if ns else "0 s"
    for unit, length, least in _UNITS:
        if ns >= least:
            return f"{_rounded(ns * 10, length, 10)} {unit}"
    return f"{_rounded(ns * 10, NS_PER_S, 10)} s"


def percent(parts: int) -> str:
    """`78.2 %` of parts per million."""
    return "<0.1 %" if 0 < parts < PPM // 2000 else f"{_rounded(parts * 1000, PPM, 10)} %"


def gpu_hours(milli_gpu_ns: int) -> str:
    """`1,234.5`, `0.03`; what is not zero is never shown as zero."""
    if milli_gpu_ns >= 10 * _MILLI_GPU_NS_PER_GPU_HOUR or not milli_gpu_ns:
        return _rounded(milli_gpu_ns * 10, _MILLI_GPU_NS_PER_GPU_HOUR, 10)
    if milli_gpu_ns * 100 < _MILLI_GPU_NS_PER_GPU_HOUR:
        return "<0.01"
    return _rounded(milli_gpu_ns * 100, _MILLI_GPU_NS_PER_GPU_HOUR, 100)


def gpus(milli_gpu: int) -> str:
    """`2`, `0.125`."""
    whole, rest = divmod(milli_gpu, 1000)
    return f"{whole:,}.{rest:03d}".rstrip("0").rstrip(".")


def _rounded(scaled: int, unit: int, scale: int) -> str:
    """`scaled / unit / scale` with as many decimals as `scale` has zeros, to the nearest."""
    value = (2 * scaled + unit) // (2 * unit)
    return f"{value // scale:,}.{value % scale:0{len(str(scale)) - 1}d}"


# -- rows --------------------------------------------------------------------------------------------------------------


def _flat(figures: Figures) -> dict[str, Any]:
    flat: dict[str, Any] = {}

    def put(prefix: str, value: object) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                put(f"{prefix}_{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    put("", msgspec.to_builtins(figures))
    return flat


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# -- plots -------------------------------------------------------------------------------------------------------------


def _waits(report: Report) -> str:
    groups = []
    highest = 0
    tenants = [figures.tenant for figures in report.policies[0].tenants]
    for at, tenant in enumerate(tenants):
        rows = []
        for number, outcomes in enumerate(report.policies):
            part = outcomes.tenants[at].all
            highest = max(highest, part.wait.p99_ns)
            rows.append(_range(number, part.wait, f"{tenant}, {outcomes.policy}: {_told(part)}"))
        groups.append((tenant, rows))
    title = "Wait of each tenant by policy: p50 (ring), p90 (dot) and p99 (end of the line)"
    return plots.ranges(title, groups, plots.decades(_LENGTHS, highest))


def _told(part: Part) -> str:
    wait = part.wait
    return (
        f"p50 {duration(wait.p50_ns)}, p90 {duration(wait.p90_ns)}, p99 {duration(wait.p99_ns)} "
        f"of {part.served:,} served; {part.refused:,} refused"
    )


def _range(series: int, spread: Spread, label: str) -> Range:
    return Range(series, spread.p50_ns, spread.p90_ns, spread.p99_ns, label)


def _use(report: Report) -> str:
    most = max(outcomes.capacity_milli_gpu for outcomes in report.policies)
    series = [
        Series(
            f"{outcomes.policy}: {percent(outcomes.utilisation_ppm)} of the pool in use on average",
            outcomes.use_milli_gpu,
        )
        for outcomes in report.policies
    ]
    ticks = [Tick(most * part // 4, f"{gpus(most * part // 4)} gpu") for part in range(5)]
    length = report.end_ns - report.start_ns
    points = len(report.policies[0].use_milli_gpu)
    along = [
        Tick((points - 1) * step // _ALONG_STEPS, duration(length * step // _ALONG_STEPS))
        for step in range(_ALONG_STEPS + 1)
    ]
    return plots.lines("GPUs in use over time by policy", series, most, ticks, along)


def _violations(report: Report) -> str:
    groups = []
    for words, part_of in (("within guarantee", _within), ("beyond it", _beyond)):
        rows = []
        for number, outcomes in enumerate(report.policies):
            part = part_of(outcomes.total)
            share = ppm(part.violations, part.arrivals)
            rows.append((number, share, f"{percent(share)} {outcomes.policy}"))
        groups.append((words, rows))
    return plots.bars("Tasks refused, failed or later than their tier's target, by policy", groups, _SHARES)


def _within(figures: Figures) -> Part:
    return figures.within


def _beyond(figures: Figures) -> Part:
    return figures.beyond


def _loans(report: Report) -> str:
    """How long loans took, by borrower and policy; nothing where nobody lends."""
    groups = []
    highest = 0
    for at, figures in enumerate(report.policies[0].tenants):
        rows = []
        for number, outcomes in enumerate(report.policies):
            loans = outcomes.tenants[at].loans
            if loans.count:
                length = loans.length
                highest = max(highest, length.max_ns)
                label = (
                    f"{figures.tenant}, {outcomes.policy}: {loans.count:,} loans, {gpu_hours(loans.milli_gpu_ns)} "
                    f"GPU-hours; p50 {duration(length.p50_ns)}, p90 {duration(length.p90_ns)}, "
                    f"longest {duration(length.max_ns)}"
                )
                rows.append(Range(number, length.p50_ns, length.p90_ns, length.max_ns, label))
        if rows:
            groups.append((figures.tenant, rows))
    if not groups:
        return ""
    title = "How long what each tenant borrowed was out: p50 (ring), p90 (dot), longest (end of the line)"
    return plots.ranges(title, groups, plots.decades(_LENGTHS, highest))
