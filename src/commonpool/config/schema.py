"""The JSON Schema (2020-12) of the configuration, for editors. It says no more than the reader enforces."""

from typing import Any

from commonpool.config.keys import ROOT
from commonpool.config.kinds import Leaf
from commonpool.config.shape import Either, Field, Record, Series, Shape, Table, Tagged


def render() -> dict[str, Any]:
    """The schema of `commonpool.yaml`; `$defs/tenant` is that of a tenant's own file."""
    definitions: dict[str, Any] = {}
    root = _record(ROOT, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "commonpool configuration",
        **root,
        "$defs": definitions,
    }


def _schema(shape: Shape, definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0911 - one for each shape
    match shape:
        case Leaf():
            return dict(shape.schema)
        case Series():
            items = _schema(shape.item, definitions)
            bounds = {"minItems": shape.limit_low, "maxItems": shape.limit, "uniqueItems": shape.distinct}
            return {"type": "array", "items": items, **bounds}
        case Either():
            return {"oneOf": [_schema(shape.one, definitions), _schema(shape.other, definitions)]}
        case Table():
            return {
                "type": ["object", "null"] if shape.limit_low == 0 else "object",
                "propertyNames": dict(shape.key.schema),
                "additionalProperties": _schema(shape.item, definitions),
                "minProperties": shape.limit_low,
                "maxProperties": shape.limit,
            }
        case Tagged():
            cases = [_case(shape, tag, record, definitions) for tag, record in shape.cases.items()]
            return {"type": "object", "required": [shape.tag], "oneOf": cases}
        case Record() if shape.name:
            if shape.name not in definitions:
                definitions[shape.name] = _record(shape, definitions)
            return {"$ref": f"#/$defs/{shape.name}"}
        case Record():
            return _record(shape, definitions)


def _record(shape: Record, definitions: dict[str, Any]) -> dict[str, Any]:
    required = [field.key for field in shape.fields if field.required]
    return {
        "type": "object" if required else ["object", "null"],
        "properties": {field.key: _field(field, definitions) for field in shape.fields},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _field(field: Field, definitions: dict[str, Any]) -> dict[str, Any]:
    description = field.help if field.derived is None else f"{field.help} Default: {field.derived}."
    said: dict[str, Any] = {"description": description, **_schema(field.shape, definitions)}
    if field.default is not None:
        said["default"] = {"true": True, "false": False}.get(field.default, field.default)
    return said


def _case(shape: Tagged, tag: str, record: Record, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = _record(record, definitions)
    schema["type"] = "object"
    schema["properties"] = {shape.tag: {"description": shape.help, "const": tag}, **schema["properties"]}
    schema["required"] = [shape.tag, *schema.get("required", [])]
    return schema
