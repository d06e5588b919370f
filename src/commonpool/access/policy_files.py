"""Policies from text to what decides: the product's own and those of an operator's folder, checked against the schema.

Every policy is called as where it stands, `FILE:LINE`, in decisions and in errors.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import cedarpy
import msgspec

from commonpool.access.permissions import Permission
from commonpool.config.problems import ConfigError, Problem, hint, listed
from commonpool.config.roles import PLATFORM_ROLES
from commonpool.config.sources import read_text

FILES_MAX: Final = 100
SUFFIX: Final = ".cedar"
SCHEMA: Final = "schema.cedarschema"

_CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|;|[^\s/";]+|.', re.DOTALL)
_NO_ACTION = re.compile(r'unrecognized action `Action::"(.*)"`')
_NO_ROLE = re.compile(r'entity `Role::"(.*)"` is of an enumerated entity type')
_PREFIX = re.compile(r"^(Policy parse error: |for policy `policy0`[,:] )")


class Policies(msgspec.Struct, frozen=True):
    """Policies that hold. `texts` are their files by name, the operator's own included.

    `named` are the tenants that some policy names. `digest` tells two sets of texts apart.
    """

    compiled: cedarpy.PolicySet
    texts: dict[str, str]
    named: frozenset[str]
    digest: str


def load(folder: Path | None = None) -> Policies:
    """The product's policies and those of this folder. ConfigError says all that is wrong there, by file and line."""
    own = {} if folder is None else _read(folder)
    texts = shipped() | {f"{folder.name}/{path.name}": text for path, text in own.items()} if folder else shipped()
    problems: list[Problem] = []
    policies: dict[str, Any] = {}
    for name, text in shipped().items():
        _add(policies, name, name, text, problems)
    for path, text in own.items():
        _add(policies, f"{path.parent.name}/{path.name}", str(path), text, problems)
    if problems:
        raise ConfigError(problems)
    whole = {"templates": {}, "staticPolicies": policies, "templateLinks": []}
    return Policies(
        cedarpy.PolicySet.from_json_str(msgspec.json.encode(whole).decode()),
        texts,
        frozenset(_named(policies)),
        hashlib.sha256(msgspec.json.encode(texts)).hexdigest(),
    )


@cache
def shipped() -> dict[str, str]:
    """The texts of the product's own policies and of their schema, by file."""
    files = resources.files("commonpool.access") / "policies"
    return {
        f"commonpool/{file.name}": file.read_text("utf-8")
        for file in sorted(files.iterdir(), key=lambda file: file.name)
        if file.name.endswith((SUFFIX, SCHEMA))
    }


@cache
def schema() -> cedarpy.Schema:
    """What policies talk about."""
    return cedarpy.Schema.from_str(shipped()[f"commonpool/{SCHEMA}"])


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Each policy of a file with the line that it begins in, from 1; what is behind the last `;` is one too."""
    line, first, start = 1, 0, 0
    for token in _CODE.finditer(text):
        found = token.group()
        if not first and not found.isspace() and not found.startswith("//"):
            first, start = line, token.start()
        line += found.count("\n")
        if found == ";":
            yield first, text[start : token.end()]
            first = 0
    if first:
        yield first, text[start:]


def _read(folder: Path) -> dict[Path, str]:
    if not folder.is_dir():
        raise ConfigError([_of_folder(folder, "is no folder of policies; check access.policies")])
    paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))
    if not paths:
        raise ConfigError([_of_folder(folder, f"has no file *{SUFFIX}; write one, or leave access.policies out")])
    if len(paths) > FILES_MAX:
        raise ConfigError([_of_folder(folder, f"has {len(paths)} files *{SUFFIX}; allowed are {FILES_MAX}")])
    problems: list[Problem] = []
    texts: dict[Path, str] = {}
    for path in paths:
        try:
            texts[path] = read_text(path)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return texts


def _of_folder(folder: Path, sentence: str) -> Problem:
    return Problem(str(folder), None, None, "", None, sentence)


def _add(policies: dict[str, Any], name: str, file: str, text: str, problems: list[Problem]) -> None:
    """The policies of a file, and what is wrong with each of them."""
    if name.endswith(SCHEMA):
        return
    for line, statement in statements(text):
        try:
            policy = _checked(statement)
        except ValueError as error:
            problems.append(Problem(file, line, None, "", None, str(error)))
            continue
        place, nth = f"{name}:{line}", 1
        while place in policies:
            nth += 1
            place = f"{name}:{line}:{nth}"
        policies[place] = policy


def _checked(statement: str) -> Any:
    """One policy as JSON. ValueError says what is wrong with it."""
    try:
        parsed = msgspec.json.decode(cedarpy.policies_to_json_str(statement))
    except ValueError as error:
        raise ValueError(f"is not a policy: {error}") from None
    if parsed["templates"]:
        raise ValueError("is a template, which nothing here fills in; name who it is about in place of ?principal")
    errors = cedarpy.validate_policies(statement, schema()).errors
    if errors:
        raise ValueError(_sentence(errors[0].error))
    (policy,) = parsed["staticPolicies"].values()
    return policy


def _sentence(error: str) -> str:
    """What is wrong, and what there is instead, where that is known."""
    if found := _NO_ACTION.search(error):
        return f"there is no action {found[1]}; {hint(found[1], [each.value for each in Permission], 'there are')}"
    if found := _NO_ROLE.search(error):
        return (
            f"there is no role {found[1]} on the platform; there are {listed(PLATFORM_ROLES)}, and roles in a tenant"
            " are resource.tenant_admins, developers, viewers and apps"
        )
    return f"does not fit the schema: {_PREFIX.sub('', error)}"


def _named(value: Any) -> Iterator[str]:
    """The tenants in a policy as JSON, wherever one is named or a role in it."""
    if isinstance(value, dict):
        match value:
            case {"type": "Tenant", "id": str(name)}:
                yield name
            case {"type": "TenantRole", "id": str(name)}:
                yield name.rpartition("/")[0]
        for each in value.values():
            yield from _named(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)
