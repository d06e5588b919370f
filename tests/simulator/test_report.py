"""Given figures, then files that say the same: to people without anything from elsewhere, to programs without loss."""

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from commonpool.core.model import NS_PER_HOUR
from commonpool.simulator import plots, report
from commonpool.simulator.figures import Figures, Lending, Outcomes, Part, Spread
from commonpool.simulator.plots import Range, Series, Tick
from commonpool.simulator.report import Report
from tests.core.worlds import S

NASTY = 'a"><script>alert(1)</script>'


def part(arrivals: int, violations: int = 0, wait_ns: int = S) -> Part:
    return Part(arrivals, arrivals, 0, 0, violations, Spread(wait_ns, 2 * wait_ns, 3 * wait_ns, wait_ns, 4 * wait_ns))


def figures(name: str, loans: int = 0) -> Figures:
    lending = Lending(loans, loans * 1000 * NS_PER_HOUR, Spread(S, 2 * S, 3 * S, S, 4 * S) if loans else Spread())
    return Figures(name, 1000, part(10, 3), part(6, 1), part(4, 2), 5000 * NS_PER_HOUR, 0, 0, 0, lending, 0)


def outcomes(policy: str, loans: int = 0) -> Outcomes:
    return Outcomes(
        policy=policy,
        sentence=f"What {policy} does.",
        total=figures("", loans),
        tenants=(figures(NASTY, loans), figures("b")),
        capacity_milli_gpu=4000,
        utilisation_ppm=780_000,
        use_milli_gpu=(1000, 4000, 0),
        service_gap=3840,
        service_gap_end=12,
        fragmentation_ppm=0,
        refusals={"promise": 2},
    )


def a_report(loans: int = 5) -> Report:
    policies = (outcomes("fifo"), outcomes("commonpool", loans))
    return Report("day.csv.gz", "requests", 20, {"asks for no GPU": 3}, 0, 86_400 * S, {"seed": "0"}, policies)


class Page(HTMLParser):
    """What a page has, and whether its elements are closed in order."""

    VOID = frozenset({"meta", "link", "br"})
    OPEN_ENDED = frozenset({"th", "td", "li", "tr", "p"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID | self.OPEN_ENDED:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.OPEN_ENDED:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_files_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (report.write(a_report(), tmp_path / name) for name in ("one", "two/deep"))
    assert [file.name for file in first] == ["report.html", "summary.csv", "tenants.csv", "report.json"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_json_has_all_of_it(tmp_path: Path) -> None:
    file = report.write(a_report(), tmp_path)[-1]
    assert msgspec.json.decode(file.read_bytes(), type=Report) == a_report()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = Page(report.html(a_report()))
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert [value for name, value in page.attributes if name in {"src", "href"}] == ["data:,"]
    assert "url(" not in report.html(a_report())
    assert "@import" not in report.html(a_report())


def test_names_are_text_in_the_page() -> None:
    page = Page(report.html(a_report()))
    assert page.words.count(NASTY) >= 2  # in the plots and in the table
    assert "script" not in page.tags


def test_every_plot_says_what_it_is() -> None:
    text = report.html(a_report())
    plotted = re.findall(r'<svg viewBox="[^"]+" role="img" aria-label="([^"]+)"><title>([^<]+)</title>', text)
    assert len(plotted) == 4
    assert all(label == title for label, title in plotted)
    assert "Nobody lent to anybody." not in text
    assert "Nobody lent to anybody." in report.html(a_report(loans=0))


def test_summary_has_a_row_a_policy_and_tenants_one_each() -> None:
    summary = list(csv.DictReader(io.StringIO(report.summary_csv(a_report()))))
    tenants = list(csv.DictReader(io.StringIO(report.tenants_csv(a_report()))))
    assert [row["policy"] for row in summary] == ["fifo", "commonpool"]
    assert (summary[1]["within_violations"], summary[1]["loans_count"], summary[1]["service_gap"]) == ("1", "5", "3840")
    assert summary[0]["all_wait_p99_ns"] == str(3 * S)
    assert [(row["policy"], row["tenant"]) for row in tenants] == [
        (policy, tenant) for policy in ("fifo", "commonpool") for tenant in (NASTY, "b")
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (1, "<0.01 s"),
        (S // 100, "0.01 s"),
        (9_994_999_999, "9.99 s"),
        (12_340_000_000, "12.3 s"),
        (100 * S, "1.7 min"),
        (7199 * S, "2.0 h"),
        (47 * 3600 * S, "47.0 h"),
        (48 * 3600 * S, "2.0 d"),
        (86_400_000 * S, "1,000.0 d"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert report.duration(ns) == text


def test_shares_and_gpu_hours() -> None:
    assert [report.percent(ppm) for ppm in (0, 1, 500, 780_000, 1_000_000)] == [
        "0.0 %",
        "<0.1 %",
        "0.1 %",
        "78.0 %",
        "100.0 %",
    ]
    hours = [report.gpu_hours(each * NS_PER_HOUR) for each in (0, 1, 30, 9999, 1_234_560)]
    assert hours == ["0.0", "<0.01", "0.03", "10.00", "1,234.6"]
    assert [report.gpus(each) for each in (2000, 125, 1_500_000)] == ["2", "0.125", "1,500"]


def test_ranges_lie_on_a_logarithmic_axis() -> None:
    ticks = [Tick(1, "1"), Tick(10, "10"), Tick(100, "100"), Tick(1000, "1000")]
    svg = plots.ranges("t", [("a", [Range(0, 0, 10, 100, "label")])], plots.decades(ticks, 50))
    shown = re.findall(r'class="below" x="([0-9.]+)"', svg)
    assert len(shown) == 3  # up to the first tick that is not below the highest value
    (low,), (centre,) = (re.findall(rf'class="{kind}" cx="([0-9.]+)"', svg) for kind in ("hole", "dot"))
    assert (low, centre) == (shown[0], shown[1])  # 0 is drawn at the least


def test_lines_leave_out_what_is_not_there() -> None:
    svg = plots.lines("t", [Series("a", [0, None, 10])], 10, [Tick(0, "0"), Tick(10, "10")], [Tick(2, "end")])
    points = re.findall(r'points="([^"]*)"', svg)[0].split()
    bottom, top = re.findall(r'class="left" x="\d+" y="([0-9.]+)"', svg)
    assert len(points) == 2
    assert [float(point.split(",")[1]) + 4 for point in points] == [float(bottom), float(top)]
