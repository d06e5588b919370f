"""Reads a tree of nodes by a shape: parsed values with written-out defaults, and every fault with its place.

A value that is wrong or missing is absent from the result; `Report.is_bad` tells the two apart. In a list None stands
for one that is wrong, so that the others keep their numbers.
"""

from collections.abc import Iterator
from typing import Any

from commonpool.config.kinds import Leaf
from commonpool.config.problems import KeyPath, Report, SecretError, hint, listed, quote
from commonpool.config.shape import Either, Field, Record, Series, Shape, Table, Tagged, Values
from commonpool.config.tree import Mapping, Node, Scalar, Sequence


class _Absent:
    """What stands for a value that could not be read."""


ABSENT = _Absent()


def entries(values: Values, section: str, report: Report) -> Iterator[tuple[KeyPath, str, Values]]:
    """Path, name and content of each thing in a section, those left out that could not be read at all."""
    for name, value in values.get(section, {}).items():
        path = (section, name)
        if not report.is_bad(path):
            yield path, name, value


def read(shape: Shape, node: Node, path: KeyPath, report: Report) -> Any:
    """The value of `node`, or ABSENT after reporting why there is none."""
    match shape:
        case Leaf():
            return _leaf(shape, node, path, report)
        case Series():
            return _series(shape, node, path, report)
        case Either():
            return _either(shape, node, path, report)
        case Record():
            items = _items(node, f"a mapping with the keys {listed(shape.by_key)}", path, report)
            return ABSENT if items is None else _record(shape, items, path, report)
        case Table():
            items = _items(node, "a mapping from names", path, report)
            return ABSENT if items is None else _table(shape, items, path, report)
        case Tagged():
            items = _items(node, f"a mapping with the key {shape.tag}", path, report)
            return ABSENT if items is None else _tagged(shape, items, path, report)


def _leaf(kind: Leaf, node: Node, path: KeyPath, report: Report) -> Any:
    if not isinstance(node, Scalar):
        found = "a list" if isinstance(node, Sequence) else "a mapping"
        report.fail(path, f"holds {found}; write {kind.what}")
        return ABSENT
    if node.is_null:
        report.fail(path, f"has no value; write {kind.what}, or leave the key out")
        return ABSENT
    try:
        return kind.parse(node.text)
    except SecretError as error:
        report.fail(path, str(error))
    except ValueError as error:
        report.fail(path, str(error), node.text)
    return ABSENT


def _series(shape: Series, node: Node, path: KeyPath, report: Report) -> Any:
    if not isinstance(node, Sequence):
        report.fail(path, f"must be a list, each item {_wanted(shape.item)}; write it like [first, second]")
        return ABSENT
    if not shape.limit_low <= len(node.items) <= shape.limit:
        report.fail(path, f"has {len(node.items)} items; allowed are {shape.limit_low} to {shape.limit}")
        return ABSENT
    values: list[Any] = []
    for number, item in enumerate(node.items):
        at = (*path, str(number))
        report.mark(at, item.mark)
        value = read(shape.item, item, at, report)
        if shape.distinct and value is not ABSENT and value in values:
            report.fail(at, f"{quote(str(value))} is in the list twice; remove one", str(value))
            value = ABSENT
        values.append(None if value is ABSENT else value)
    return values


def _either(shape: Either, node: Node, path: KeyPath, report: Report) -> Any:
    if not isinstance(node, Scalar):
        return read(shape.other, node, path, report)
    if node.is_null:
        report.fail(path, f"has no value; write {_wanted(shape)}, or leave the key out")
        return ABSENT
    try:
        return shape.one.parse(node.text)
    except ValueError as error:
        report.fail(path, f"{error}; or write {_wanted(shape.other)}", node.text)
    return ABSENT


def _items(node: Node, wanted: str, path: KeyPath, report: Report) -> list[tuple[Scalar, Node]] | None:
    """The keys of a mapping, each once; an empty value counts as an empty mapping."""
    if isinstance(node, Scalar) and node.is_null:
        return []
    if not isinstance(node, Mapping):
        report.fail(path, f"must be {wanted}, not {'a list' if isinstance(node, Sequence) else 'a single value'}")
        return None
    first: dict[str, tuple[Scalar, Node]] = {}
    for key, value in node.items:
        if key.text in first:
            line = first[key.text][0].mark.line
            report.fail((*path, key.text), f"is there twice, first in line {line}; remove one", mark=key.mark)
        else:
            first[key.text] = (key, value)
    return list(first.values())


def _record(shape: Record, items: list[tuple[Scalar, Node]], path: KeyPath, report: Report) -> Values:
    values: Values = {}
    by_key = shape.by_key
    for key, node in items:
        at = (*path, key.text)
        field = by_key.get(key.text)
        if field is None:
            report.fail(at, _unknown(key.text, shape) if not report.full else "", mark=key.mark)
            continue
        report.mark(at, key.mark)
        value = read(field.shape, node, at, report)
        if value is not ABSENT:
            values[key.text] = value
    present = {key.text for key, _ in items}
    for field in shape.fields:
        if field.key not in present:
            _fill(field, values, path, report)
    return values


def _fill(field: Field, values: Values, path: KeyPath, report: Report) -> None:
    """What an absent key means: an error, its default, or an empty record with its own defaults."""
    if field.required:
        report.fail((*path, field.key), f"is missing; write {_wanted(field.shape)}")
    elif field.default is not None and isinstance(field.shape, Leaf):
        values[field.key] = field.shape.parse(field.default)
    elif isinstance(field.shape, Record):
        values[field.key] = _record(field.shape, [], (*path, field.key), report)


def _wanted(shape: Shape) -> str:
    match shape:
        case Leaf():
            return shape.what
        case Series():
            return f"a list, each item {_wanted(shape.item)}"
        case Either():
            return f"{shape.one.what}, or {_wanted(shape.other)}"
        case Record():
            return f"a mapping with the keys {listed(shape.by_key)}"
        case Table():
            return "a mapping from names"
        case Tagged():
            return f"a mapping with {shape.tag}: {' or '.join(shape.cases)}"


def _unknown(word: str, shape: Record) -> str:
    known = list(shape.by_key)
    if word == "<<":
        return "merging mappings with << is not supported; write the keys out"
    # A key in the right file at the wrong level is named with the level that it belongs to.
    inner = {
        key: f"{field.key}.{key}"
        for field in shape.fields
        if isinstance(field.shape, Record)
        for key in field.shape.by_key
    }
    if word in inner:
        return f"is not a known key; did you mean {inner[word]}? Known here: {listed(known)}"
    return f"is not a known key; {hint(word, known, 'known here')}"


def _table(shape: Table, items: list[tuple[Scalar, Node]], path: KeyPath, report: Report) -> Any:
    if not shape.limit_low <= len(items) <= shape.limit:
        report.fail(path, f"has {len(items)} entries; allowed are {shape.limit_low} to {shape.limit}")
        return ABSENT
    values: Values = {}
    for key, node in items:
        at = (*path, key.text)
        report.mark(at, key.mark)
        try:
            name = shape.key.parse(key.text)
        except ValueError as error:
            report.fail(at, str(error), key.text)
            continue
        value = read(shape.item, node, at, report)
        # A thing that could not be read still has a name: what refers to it is not wrong.
        values[name] = {} if value is ABSENT and not isinstance(shape.item, Leaf | Either) else value
    return {name: value for name, value in values.items() if value is not ABSENT}


def _tagged(shape: Tagged, items: list[tuple[Scalar, Node]], path: KeyPath, report: Report) -> Any:
    at = (*path, shape.tag)
    tag = next((item for item in items if item[0].text == shape.tag), None)
    if tag is None:
        report.fail(at, f"is missing; write one of {listed(shape.cases)}")
        return ABSENT
    report.mark(at, tag[0].mark)
    node = tag[1]
    if not isinstance(node, Scalar) or node.text not in shape.cases:
        text = node.text if isinstance(node, Scalar) else ""
        report.fail(at, f"{quote(text)} is not known here; {hint(text, shape.cases, 'allowed')}", text)
        return ABSENT
    rest = [item for item in items if item[0] is not tag[0]]
    return {shape.tag: node.text, **_record(shape.cases[node.text], rest, path, report)}
