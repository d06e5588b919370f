"""YAML becomes a bounded tree of text that knows its place, or one problem that says why not."""

from pathlib import Path

import pytest
import yaml

from commonpool.config.problems import Mark, Problem, Report, quote
from commonpool.config.tree import DEPTH_MAX, NODES_MAX, Mapping, Node, Scalar, Sequence, compose


def tree(text: str) -> Node:
    report = Report("c.yaml")
    root = compose(text, "c.yaml", report)
    assert report.problems == ()
    assert root is not None
    return root


def problem(text: str) -> Problem:
    report = Report("c.yaml")
    assert compose(text, "c.yaml", report) is None
    assert len(report.problems) == 1
    return report.problems[0]


def test_scalars_stay_text_with_their_place() -> None:
    root = tree("a: on\nb:\n  - 010\n  - '12:30'\n")
    assert root == Mapping(
        [
            (Scalar("a", True, Mark("c.yaml", 1, 1)), Scalar("on", True, Mark("c.yaml", 1, 4))),
            (
                Scalar("b", True, Mark("c.yaml", 2, 1)),
                Sequence(
                    [Scalar("010", True, Mark("c.yaml", 3, 5)), Scalar("12:30", False, Mark("c.yaml", 4, 5))],
                    Mark("c.yaml", 3, 3),
                ),
            ),
        ],
        Mark("c.yaml", 1, 1),
    )


def test_only_plain_emptiness_is_null() -> None:
    root = tree("[~, null, '', 'null', x]")
    assert isinstance(root, Sequence)
    assert [item.is_null for item in root.items if isinstance(item, Scalar)] == [True, True, False, False, False]


def test_an_alias_is_what_it_stands_for() -> None:
    root = tree("a: &x {b: 1}\nc: *x\n")
    assert isinstance(root, Mapping)
    assert root.items[0][1] == root.items[1][1]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", None, "is empty; a configuration has at least pools, models and prices"),
        ("# nothing\n", None, "is empty; a configuration has at least pools, models and prices"),
        ("---\n", None, "is empty; a configuration has at least pools, models and prices"),
        ("a:\n\tb: 1\n", 2, "a tab stands where YAML wants spaces; indent with spaces"),
        ("a: 1\n---\nb: 2\n", 2, "holds a second document; a file is one document, so remove the line with ---"),
        ("a: b: c\n", 1, "is not valid YAML: mapping values are not allowed in this context"),
        ("a: [1, 2\n", 2, "is not valid YAML: did not find expected ',' or ']' (while parsing a flow sequence)"),
        ("a: 1\nb: \x07\n", 2, "holds the control character U+0007; write plain text"),
        ("a: *nowhere\n", 1, 'the alias "*nowhere" names no anchor that ends before it'),
        ("a: &x [*x]\n", 1, 'the alias "*x" names no anchor that ends before it'),
        ("? [a]\n: 1\n", 1, "a key must be a name, not a list or a mapping"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, None),
        ("a: !secret x\n", 1, 'the tag "!secret" is not supported; write the value alone'),
        ("a: !!binary aGk=\n", 1, 'the tag "tag:yaml.org,2002:binary" is not supported; write the value alone'),
    ],
)
def test_what_is_no_tree_is_one_sentence_with_its_line(text: str, line: int | None, sentence: str | None) -> None:
    found = problem(text)
    assert (found.file, found.line, found.key) == ("c.yaml", line, "")
    assert sentence is None or found.sentence == sentence


def test_depth_is_bounded() -> None:
    assert tree("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    assert "levels deep" in problem("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)).sentence
    assert problem("[" * 100_000).line == 1
    assert problem("\n".join(" " * depth + "a:" for depth in range(2000))).line == DEPTH_MAX + 1


def test_aliases_count_as_large_as_what_they_stand_for() -> None:
    # Ten times ten times ten … of one word, in a few lines.
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    assert problem(bomb).sentence == f"holds more than {NODES_MAX} values, aliases written out"


def test_the_parser_in_python_reads_the_same(root: Path) -> None:
    text = (root / "commonpool.yaml").read_text()
    report = Report("c.yaml")
    assert compose(text, "c.yaml", report, yaml.SafeLoader) == tree(text)


def test_a_value_is_shown_with_nothing_that_a_terminal_would_obey() -> None:
    assert quote("é\u202e\x1b\x9b") == '"é\\u202e\\u001b\\u009b"'
    assert quote("\U000e0001") == '"\\udb40\\udc01"'
