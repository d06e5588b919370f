"""The JSON Schema and the reference say what the reader does."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from commonpool.config import ConfigError, parse
from commonpool.config.keys import ROOT
from commonpool.config.schema import render
from commonpool.config.shape import Field, Record, Table, Tagged


def fits(schema: dict[str, Any], value: Any, definitions: dict[str, Any]) -> bool:  # noqa: C901 - a line for each word
    """Whether a value satisfies a schema, for the words of JSON Schema that ours uses and no others."""
    known = {
        "$ref", "$schema", "$defs", "title", "description", "default", "type", "properties", "required", "enum",
        "const", "additionalProperties", "propertyNames", "minProperties", "maxProperties", "items", "minItems",
        "maxItems", "uniqueItems", "oneOf", "pattern", "minLength", "minimum", "maximum",
    }  # fmt: skip
    assert schema.keys() <= known
    if "$ref" in schema:
        return fits(definitions[schema["$ref"].removeprefix("#/$defs/")], value, definitions)
    checks: list[bool] = []
    if "type" in schema:
        checks.append(
            any(is_type(value, name) for name in [schema["type"]] * isinstance(schema["type"], str) or schema["type"])
        )
    if "enum" in schema:
        checks.append(value in schema["enum"])
    if "const" in schema:
        checks.append(value == schema["const"])
    if "oneOf" in schema:
        checks.append(sum(fits(case, value, definitions) for case in schema["oneOf"]) == 1)
    if isinstance(value, dict):
        checks.append(schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 10**9))
        checks.append(all(key in value for key in schema.get("required", [])))
        for key, item in value.items():
            rest = schema.get("additionalProperties", True)
            inner = schema.get("properties", {}).get(key, rest)
            checks.append(inner if isinstance(inner, bool) else fits(inner, item, definitions))
            checks.append(fits(schema.get("propertyNames", {}), key, definitions))
    if isinstance(value, list):
        checks.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9))
        checks.extend(fits(schema.get("items", {}), item, definitions) for item in value)
    if isinstance(value, str):
        checks.append(re.search(schema.get("pattern", ""), value) is not None)
        checks.append(len(value) >= schema.get("minLength", 0))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        checks.append(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return all(checks)


def is_type(value: Any, name: str) -> bool:
    types: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, types[name])


def valid(value: Any) -> bool:
    schema = render()
    return fits(schema, value, schema["$defs"])


def loaded(text: str) -> Any:
    """A text as editors see it: they know no dates, so `2026-11-03` is a string to them."""
    return msgspec.to_builtins(yaml.safe_load(text))


def test_the_file_is_what_the_reader_would_have(root: Path) -> None:
    committed = (root / "docs" / "commonpool.schema.json").read_text()
    assert committed == json.dumps(render(), indent=2, ensure_ascii=False) + "\n", (
        "write it anew: commonpool schema > docs/commonpool.schema.json"
    )


@pytest.mark.parametrize(
    "file", ["commonpool.yaml", "examples/cluster.yaml", "examples/divisions.yaml", "examples/nodes.yaml"]
)
def test_the_examples_satisfy_it_and_name_it(root: Path, file: str) -> None:
    text = (root / file).read_text()
    assert valid(loaded(text))
    line = text.splitlines()[0]
    where = line.removeprefix("# yaml-language-server: $schema=")
    assert (root / file).parent.joinpath(where).resolve() == (root / "docs" / "commonpool.schema.json").resolve()


@pytest.mark.parametrize("file", ["support", "fraud-detection"])
def test_a_tenant_s_file_satisfies_its_part(root: Path, file: str) -> None:
    definitions = render()["$defs"]
    assert fits(
        definitions["tenant"], yaml.safe_load((root / f"examples/tenants/{file}.yaml").read_text()), definitions
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pools:", "foo: 1\npools:"),
        ("gpus: 4_gpu", "gpus: 4_cpu"),
        ("gpus: 4_gpu", "gpus: -1"),
        ("gpus: 4_gpu", "gpus: 4, rule: elastc"),
        ("    slots: 4\n", ""),
        ("slots: 4", "slots: 0"),
        ("context: 2048", "context: 2.5"),
        ("kind: embedded, ", ""),
        ("kind: embedded", "kind: attached"),
        ("main: 2.50", "main: -1"),
        ("EUR", "eur"),
        ("main: 2.50", "main: []"),
        ("main: 2.50", "main: [{from: 2026-12-01}]"),
        ("main: 2.50", "main: [{price: 1, from: 01.12.2026}]"),
        ("EUR", "EUR, lending: {main: 80}"),
        ("EUR", "EUR, lending: {main: {hours: {evening: 50%}}}"),
        ("EUR", "EUR, meters: {tokens: 1}"),
        ("tenants:", "costs: [{name: room, month: 4, split: uniform}]\ntenants:"),
        ("support:", "Support:"),
        ("guaranteed:", "garanteed:"),
        ("guaranteed: 2_gpu", "borrowable: 'yes'"),
        ("pools:", "timeouts: {idle: 75}\npools:"),
    ],
)
def test_what_it_refuses_the_reader_refuses(base: str, old: str, new: str) -> None:
    text = base.replace(old, new, 1)
    assert valid(loaded(base))
    assert not valid(loaded(text))
    with pytest.raises(ConfigError):
        parse(text)


def fields(record: Record, path: str = "") -> Iterator[tuple[str, Field]]:
    for field in record.fields:
        key = path + field.key
        inner = field.shape
        if isinstance(inner, Table):
            key_below, inner = f"{key}.NAME.", inner.item
        else:
            key_below = f"{key}."
        below = list(inner.cases.values()) if isinstance(inner, Tagged) else [inner]
        records = [shape for shape in below if isinstance(shape, Record)]
        if not records or field.key in ("apps", "engine"):
            yield key, field
        for shape in records:
            yield from fields(shape, key_below)


def test_the_reference_has_every_key_with_its_default(root: Path) -> None:
    lines = (root / "docs" / "configuration.md").read_text().splitlines()
    cells = [[cell.strip() for cell in re.sub("[`*]", "", line).split("|")[1:-1]] for line in lines]
    defaults = {row[0]: row[2] for row in cells if len(row) == 4 and row[0] not in ("key", "---")}
    assert defaults == {
        key: field.default or field.derived or ("required" if field.required else "") for key, field in fields(ROOT)
    }
