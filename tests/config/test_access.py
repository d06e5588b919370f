"""Who may come to the control plane: what is read, what contradicts itself, what a change of it is called."""

# ruff: noqa: E501 - a table of sentences is read by the line

from collections.abc import Callable
from pathlib import Path

import pytest

from commonpool.config import Kind, diff, parse
from commonpool.config.structs import Access, Oidc, Role

Wrong = Callable[[str], list[str]]

OIDC = """\
access:
  local: false
  url: https://pool.example/
  policies: policies
  oidc:
    issuer: https://id.example/realms/house/
    client_id: commonpool
    client_secret: file:oidc
    audience: commonpool-api
  roles:
    - {role: operator, group: /gpu/operators}
    - {role: tenant-admin, tenant: support, email: Ann@House.example}
    - {role: viewer, tenant: support, account: ann}
    - {role: viewer, account: ann}
    - {role: developer, tenant: support, subject: machine-7}
"""


def test_without_a_word_who_is_here_is_admin_and_nobody_else_comes(base: str) -> None:
    assert parse(base).access == Access(local=True, url=None, policies=None, oidc=None, roles=())


def test_what_is_said_is_what_is_read(base: str) -> None:
    assert parse(base + OIDC, "/etc/pool/c.yaml").access == Access(
        local=False,
        url="https://pool.example",
        policies=Path("/etc/pool/policies"),
        oidc=Oidc(
            "https://id.example/realms/house/", "commonpool", "file:/etc/pool/oidc", "commonpool-api", groups="groups"
        ),
        roles=(
            Role("operator", None, "group", "/gpu/operators"),
            Role("tenant-admin", "support", "email", "ann@house.example"),
            Role("viewer", "support", "account", "ann"),
            Role("viewer", None, "account", "ann"),
            Role("developer", "support", "subject", "machine-7"),
        ),
    )


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("roles: [{role: operator, account: ann, tenant: support}]", "14: access.roles.0.role: operator is a role on the whole platform; leave tenant out, or write one of tenant-admin, developer, viewer"),
        ("roles: [{role: developer, account: ann}]", "14: access.roles.0.role: developer is a role in a tenant; write which under tenant"),
        ("roles: [{role: viewer, account: ann, tenant: suport}]", '14: access.roles.0.tenant: there is no tenant "suport"; did you mean support? Known: support'),
        ("roles: [{role: viewr, account: ann}]", '14: access.roles.0.role: "viewr" is not known here; did you mean viewer? Allowed: platform-admin, operator, finance, viewer, auditor, tenant-admin, developer'),
        ("roles: [{role: viewer}]", "14: access.roles.0: says none of who has it; write one of account, group, email, subject"),
        ("roles: [{role: viewer, account: a, subject: b}]", "14: access.roles.0: says account, subject of who has it; write one of account, group, email, subject"),
        ("roles: [{role: viewer, account: a}, {role: viewer, account: a}]", "14: access.roles.1: says the same as access.roles.0; remove one"),
        ("roles: [{role: viewer, account: a}, {role: auditor, account: a}]", None),
        ("roles: [{role: viewer, email: a@b.example}]", "14: access.roles.0.email: is what an issuer says, and there is none; write one under access.oidc"),
        ("roles: [{role: viewer, email: somebody}]", '14: access.roles.0.email: "somebody" is not an e-mail address; write it like ann@house.example'),
        ("roles: [{account: Ann, role: viewer}]", "14: access.roles.0.account: \"Ann\" is not a name: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', the first a letter or a digit"),
        ("oidc: {client_id: pool}, local: false, url: https://pool.example", "14: access.oidc.issuer: is missing; write its URL, like https://id.example"),
        ("oidc: {issuer: https://id.example}, local: false, url: https://pool.example", "14: access.oidc.client_id: is missing; write this product's id there"),
        ("oidc: {issuer: https://id.example, client_id: pool}", "14: access.url: is missing; write where browsers reach the control plane, since the issuer sends them back there"),
        ("oidc: {issuer: https://id.example, client_id: pool, audience: pool}, local: false, url: https://pool.example", "14: access.oidc.audience: is client_id, so whoever logs in somewhere with it would have a bearer token for here; let the issuer give another"),
        ("oidc: {issuer: https://id.example, client_id: pool, client_secret: hunter2}, local: false, url: https://pool.example", "14: access.oidc.client_secret: credential names where the secret is, never the secret: env:NAME or file:PATH"),
        ("oidc: {issuer: http://id.example, client_id: pool}, local: false, url: https://pool.example", '14: access.oidc.issuer: "http://id.example" could be anybody without TLS; write it with https'),
        ("oidc: {issuer: https://id.example?a=b, client_id: pool}, local: false, url: https://pool.example", '14: access.oidc.issuer: "https://id.example?a=b" is not an issuer\'s URL; write it like https://id.example/realms/house'),
        ("oidc: {issuer: http://127.0.0.1:9000, client_id: pool}, url: http://localhost:8081", None),
        ("url: http://pool.example", '14: access.url: "http://pool.example" would send passwords in the open; write it with https'),
        ("url: https://pool.example/console", '14: access.url: "https://pool.example/console" is not an origin; write it like https://pool.example, without a path'),
        ("url: https://pool.example", '14: access.url: "https://pool.example" is a proxy\'s, since the control plane has no TLS of its own, and what a proxy passes on may look like a program of this machine, which is a platform-admin; set access.local to false'),
        ("url: https://pool.example, local: false", None),
        ("url: https://localhost:8443", None),
        ("url: 'https://[::1]:8443'", None),
        ("locale: true", "14: access.locale: is not a known key; did you mean local? Known here: local, url, policies, oidc, roles"),
    ],
)  # fmt: skip
def test_what_contradicts_itself(base: str, wrong: Wrong, section: str, problem: str | None) -> None:
    text = f"{base}access: {{{section}}}\n"
    if problem is None:
        parse(text)
    else:
        assert wrong(text) == [f"c.yaml:{problem}"]


def test_a_role_that_comes_and_goes_is_named_by_who_has_it(base: str) -> None:
    more = OIDC + "    - {role: finance, account: ann}\n"
    (found,) = diff(parse(base + OIDC), parse(base + more))
    assert (found.key, found.old, found.new, found.kind, found.effect) == (
        "access.roles.account ann",
        "viewer, viewer in support",
        "finance, viewer, viewer in support",
        Kind.AT_ONCE,
        "at once",
    )
    assert [change.key for change in diff(parse(base + OIDC), parse(base))] == [
        "access.local",
        "access.url",
        "access.policies",
        "access.oidc.issuer",
        "access.oidc.client_id",
        "access.oidc.client_secret",
        "access.oidc.audience",
        "access.oidc.groups",
        "access.roles.group /gpu/operators",
        "access.roles.email ann@house.example",
        "access.roles.account ann",
        "access.roles.subject machine-7",
    ]
