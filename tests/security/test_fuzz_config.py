"""The loader of configurations on whatever it may be given: one or a list of problems, and what YAML means by it.

tests/config/test_loading.py mutilates the text of one file. Here there are several, as the admin API takes them from
whoever may apply a configuration, and bytes on a disk; and a second reader, PyYAML's own composer, says what a text
means, where ours builds its tree from events.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from commonpool.config import Config, ConfigError, Sources, diff, parse_sources
from commonpool.config.loading import load, load_tenant
from commonpool.config.problems import PROBLEMS_MAX, Report
from commonpool.config.sources import is_tenant_text
from commonpool.config.tree import LOADER, NODES_MAX, Mapping, Node, Scalar, compose
from tests.security.cuts import mutated
from tests.security.searching import search

MAIN = """\
pools:
  main: {gpus: 4_gpu, resources: {memory: 100GiB}}
models:
  small: {version: v1, gpu: 1_gpu, slots: 4, context: 2048, engine: {kind: embedded, file: small.gguf}}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
groups: {top: {guaranteed: 3_gpu}}
include: [tenants/*.yaml]
tenants:
  support: &s
    tenant: {group: top, guaranteed: 2_gpu, elastic_cap: 3_gpu}
    queue: {priority: {interactive: 9, batch: 3}, max_wait: 30s}
    apps: {helpdesk: {cost_center: "1"}}
"""
TENANT = """\
tenant: {guaranteed: 1_gpu}
limits: {requests: 60/min}
apps: {papers: {}, slides: {}}
"""
PIECES = [
    *(each.encode() for each in "&*!|>%@`{}[],:?-#'\"\t\n~"),
    b"<<: *s",
    b"*s",
    b"&s",
    b"---\n",
    b"null",
    b"!!python/object:os.system ",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"9" * 400,
    b"-1",
    b"1e999",
    b"[" * 40,
    b"{a: " * 40,
    b"? ",
    b"include: [../../*]\n",
    b"tenants: {}\n",
    b"file:/etc/passwd",
]
NAMES = [
    "tenants/research.yaml",
    "other.yaml",
    "tenants/support.yaml",
    "elsewhere/x.yaml",
    "",
    "tenants/a b.yaml",
    "../y",
]

main = st.just(MAIN.encode()) | mutated(MAIN.encode(), PIECES)
tenant = st.just(TENANT.encode()) | mutated(TENANT.encode(), PIECES)


def text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def judged(error: ConfigError) -> None:
    """What is wrong is told problem by problem, each a sentence on one line; so many at most."""
    assert error.problems
    assert len(error.problems) <= PROBLEMS_MAX + 10
    for problem in error.problems:
        assert problem.sentence
        assert "\n" not in str(problem).removeprefix(problem.file)
        assert len(problem.sentence) < 2000


@st.composite
def everything(draw: st.DrawFn) -> Sources:
    """Sources as the admin API takes them: which file is what may be told wrongly, too."""
    files = {"c.yaml": text(draw(main))}
    files |= {draw(st.sampled_from(NAMES)): text(draw(tenant)) for _ in range(draw(st.integers(0, 3)))}
    names = st.sampled_from([*files, "nowhere.yaml"])
    applied = draw(st.dictionaries(st.sampled_from(["support", "research", "a b", ""]), names, max_size=2))
    return Sources(draw(st.just("c.yaml") | names), files, draw(st.sampled_from([".", "", "/", "\x00"])), applied)


@search(120)
@given(everything())
@example(Sources("", {}))
@example(Sources("c", {"c": MAIN}, ".", {"c": "c"}))
def test_any_files_are_a_configuration_or_a_list_of_problems(sources: Sources) -> None:
    try:
        config = parse_sources(sources)
    except ConfigError as error:
        judged(error)
        return
    # A configuration is what it is: read again it is the same, and it can be told from no other and to anybody.
    assert not list(diff(config, parse_sources(sources)))
    assert msgspec.json.decode(msgspec.json.encode(sources), type=Sources) == sources
    assert isinstance(config, Config)


@search(100)
@given(main, tenant)
@example(b"\xff\xfea\x00", b"")
@example(MAIN.encode("utf-16"), TENANT.encode("utf-8-sig"))
def test_any_bytes_on_a_disk_are_a_configuration_or_a_list_of_problems(whole: bytes, part: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, below = Path(folder, "c.yaml"), Path(folder, "tenants", "research.yaml")
        below.parent.mkdir()
        path.write_bytes(whole)
        below.write_bytes(part)
        for read, file in ((load, path), (load_tenant, below)):
            try:
                read(file)
            except ConfigError as error:
                judged(error)


# -- what a text means -------------------------------------------------------------------------------------------------


def shown(node: Node) -> Any:
    """Our tree as a second one that can be compared: a mapping keeps its order and its doubled keys."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Mapping):
        return {"pairs": [(key.text, shown(value)) for key, value in node.items]}
    return [shown(each) for each in node.items]


def meant(node: yaml.Node | None) -> Any:
    """PyYAML's tree, likewise."""
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.MappingNode):
        return {"pairs": [(meant(key), meant(value)) for key, value in node.value]}
    assert isinstance(node, yaml.SequenceNode)
    return [meant(each) for each in node.value]


yaml_texts = st.recursive(
    st.sampled_from(
        [
            "a",
            "'b: c'",
            '"\\u00e9\\n"',
            "~",
            "",
            "|\n  x\n  y\n",
            ">-\n  folded\n  too\n",
            "1:30",
            "0o7",
            "&x v",
            "{[a]: b}",
            "{? a : b}",
        ]
    ),
    lambda inner: (
        st.lists(inner.filter(lambda each: "\n" not in each), max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.lists(inner.filter(lambda each: "\n" not in each), max_size=3).map(
            lambda each: "{" + ", ".join(f"k{n % 2}: {value}" for n, value in enumerate(each)) + "}"
        )
    ),
    max_leaves=6,
).map(lambda value: f"top: {value}\nnext:\n- 1\n- *x\n")
ANY = (yaml_texts | st.sampled_from([MAIN, TENANT])).flatmap(
    lambda whole: st.just(whole) | mutated(whole.encode(), PIECES).map(lambda data: data.decode(errors="ignore"))
)


@search(150)
@given(ANY)
def test_a_text_means_what_it_means_to_another_reader(whole: str) -> None:
    ours = compose(whole, "c.yaml", Report("c.yaml"))
    if ours is None:
        return
    # Theirs takes no anchor twice, as YAML itself allows; ours means the last one before.
    with contextlib.suppress(yaml.composer.ComposerError):
        assert shown(ours) == meant(yaml.compose(whole, Loader=LOADER))
    # The parser in Python refuses what the one in C lets pass (a tab behind a value). What it takes, it reads as that.
    with contextlib.suppress(yaml.YAMLError):
        assert shown(ours) == meant(yaml.compose(whole, Loader=yaml.SafeLoader))


@search(50)
@given(st.integers(2, 9), st.integers(2, 9), st.sampled_from(["[{}]", "{{k: [{}]}}", "[[{}]]"]))
def test_what_aliases_stand_for_is_bounded_however_they_nest(width: int, depth: int, shape: str) -> None:
    lines = ["a0: &a0 " + shape.format(", ".join(["x"] * width))]
    lines += [f"a{n}: &a{n} " + shape.format(", ".join([f"*a{n - 1}"] * width)) for n in range(1, depth)]
    report = Report("c.yaml")
    large = sum(width ** (n + 1) for n in range(depth)) > NODES_MAX
    root = compose("\n".join(lines), "c.yaml", report)
    assert root is None or not large
    assert root is not None or [problem.sentence for problem in report.problems] == [
        f"holds more than {NODES_MAX} values, aliases written out"
    ]


@search(100)
@given(main | tenant)
def test_whether_a_text_is_a_tenants_is_asked_without_a_fault(data: bytes) -> None:
    assert is_tenant_text(text(data)) in {True, False}


def test_the_texts_that_these_are_made_of_are_right() -> None:
    sources = Sources("c.yaml", {"c.yaml": MAIN, "tenants/research.yaml": TENANT})
    assert list(parse_sources(sources).policy.tenants) == ["support", "research"]
