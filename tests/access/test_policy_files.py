"""Policies as files: the product's own fit their schema, an operator's are checked, and errors say file and line."""

from pathlib import Path

import pytest

from commonpool.access import policy_files
from commonpool.access.permissions import CHANGES, WORDS, Permission
from commonpool.access.policy_files import load, shipped, statements
from commonpool.config import ConfigError

GOOD = 'permit (principal in Role::"viewer", action == Action::"read_nodes", resource);'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    return tmp_path / "policies"


def problems(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(folder)
    return [str(problem) for problem in refused.value.problems]


def test_the_schema_and_the_code_know_the_same_actions() -> None:
    schema = shipped()["commonpool/schema.cedarschema"]
    actions, changing = set[str](), set[str]()
    for statement in schema.split(";"):
        head = statement.rpartition("//")[2].partition("appliesTo")[0]
        if 'action "' in head and "appliesTo" in statement:
            named = {word for word in head.split('"')[1::2] if word != "change"}
            actions |= named
            changing |= named if '"change"' in head else set()
    assert actions == {each.value for each in Permission}
    assert changing == {each.value for each in CHANGES}
    assert WORDS.keys() == set(Permission)


def test_the_products_own_name_no_tenant() -> None:
    assert load().named == frozenset()
    assert {name for name in load().texts if name.endswith(".cedar")} == {
        f"commonpool/{name}.cedar" for name in ("contents", "everyone", "platform", "tenants")
    }


def test_an_operators_are_beside_them(folder: Path) -> None:
    (folder / "own.cedar").write_text(GOOD)
    (folder / "README.md").write_text("what these are for")
    (folder / ".hidden.cedar").write_text("permit (")
    policies = load(folder)
    assert policies.texts == shipped() | {"policies/own.cedar": GOOD}
    assert policies.digest != load().digest
    assert policies.digest == load(folder).digest
    assert len(policies.compiled) == len(load().compiled) + 1


def test_the_tenants_that_are_named(folder: Path) -> None:
    (folder / "own.cedar").write_text(
        'forbid (principal, action, resource == Tenant::"a");\n'
        'permit (principal in TenantRole::"b/viewer", action == Action::"read_bills", resource);\n'
        'permit (principal, action == Action::"read_bills", resource) when { resource in [Tenant::"c"] };\n'
    )
    assert load(folder).named == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("permit (principal, action, resource)", 1, "is not a policy: unexpected end of input"),
        (
            f"{GOOD}\n\n// and\npermit (principl, action, resource);",
            4,
            "invalid variable in the policy scope",
        ),
        (f'{GOOD}\n\n  permit (principal, action == Action::"read_statu", resource);', 3, "did you mean read_status?"),
        ('permit (principal in Role::"opertor", action, resource);', 1, "there is no role opertor on the platform"),
        ('permit (principal in Role::"developer", action, resource);', 1, "resource.tenant_admins, developers"),
        ("permit (principal, action, resource is Tenat);", 1, "unrecognized entity type `Tenat`"),
        ("permit (principal, action, resource)\nwhen { resource.owner == principal };", 1, "attribute `owner` on"),
        ('permit (principal, action == Action::"apply_config", resource is Tenant);', 1, "does not fit the schema"),
        ("permit (principal == ?principal, action, resource);", 1, "is a template, which nothing here fills in"),
        ('permit (principal, action, resource) when { "', 1, "is not a policy: invalid token"),
        (";", 1, "is not a policy"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(folder: Path, text: str, line: int, says: str) -> None:
    (folder / "own.cedar").write_text(text)
    (told,) = problems(folder)
    assert told.startswith(f"{folder}/own.cedar:{line}: ")
    assert says in told
    assert "policy0" not in told


def test_everything_that_is_wrong_is_said_at_once(folder: Path) -> None:
    (folder / "a.cedar").write_text("permit;\nforbid;")
    (folder / "b.cedar").write_text("permit (principal, action);")
    (folder / "c.cedar").write_bytes(b"\xff")
    assert problems(folder) == [f"{folder}/c.cedar:1: is not UTF-8 text; save it as UTF-8"]
    (folder / "c.cedar").unlink()
    assert [told.partition(": ")[0] for told in problems(folder)] == [
        f"{folder}/a.cedar:1",
        f"{folder}/a.cedar:2",
        f"{folder}/b.cedar:1",
    ]


def test_a_folder_that_is_none(folder: Path) -> None:
    assert problems(folder / "absent") == [f"{folder}/absent: is no folder of policies; check access.policies"]
    assert problems(folder) == [f"{folder}: has no file *.cedar; write one, or leave access.policies out"]


def test_too_many_files(folder: Path) -> None:
    for number in range(policy_files.FILES_MAX + 1):
        (folder / f"{number}.cedar").write_text(GOOD)
    assert problems(folder) == [f"{folder}: has 101 files *.cedar; allowed are 100"]


def test_a_policy_is_called_as_where_it_stands(folder: Path) -> None:
    (folder / "own.cedar").write_text(f"{GOOD} {GOOD}\n\n{GOOD}")
    text = str(load(folder).compiled)
    assert len(load(folder).compiled) == len(load().compiled) + 3
    assert text.count("read_nodes") >= 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("// nothing;\n", []),
        ("a;\nb;", [(1, "a;"), (2, "b;")]),
        ('// x;\na "y;\n" ; // z;\n\n  b ;', [(2, 'a "y;\n" ;'), (5, "b ;")]),
        ('a "\\";";b', [(1, 'a "\\";";'), (1, "b")]),
        ("a / b; // c", [(1, "a / b;")]),
    ],
)
def test_where_policies_begin(text: str, found: list[tuple[int, str]]) -> None:
    assert list(statements(text)) == found
