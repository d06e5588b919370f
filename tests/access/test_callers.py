"""Callers and the roles they can be bound to."""

import pytest

from commonpool.access.callers import LOCAL, Binding, RoleError, by_admin_key, by_data_key


def test_a_role_is_bound_where_it_counts() -> None:
    assert Binding("operator").tenant is None
    assert Binding("developer", "risk").tenant == "risk"
    assert Binding("viewer") != Binding("viewer", "risk")


@pytest.mark.parametrize(
    ("role", "tenant"),
    [
        ("tenant-admin", None),
        ("operator", "risk"),
        ("platform-admin", "risk"),
        ("app", None),
        ("root", None),
        ("", None),
        ("viewer", ""),
    ],
)
def test_a_role_is_not_bound_where_it_does_not_exist(role: str, tenant: str | None) -> None:
    with pytest.raises(RoleError, match=repr(role)):
        Binding(role, tenant)


def test_a_role_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(RoleError, match=r"in tenant .risk.; there is tenant-admin, developer, viewer$"):
        Binding("operator", "risk")


def test_who_needs_no_credential_is_named_local() -> None:
    assert (LOCAL.name, LOCAL.kind, LOCAL.bindings) == ("local", "local", (Binding("platform-admin"),))


def test_an_admin_key_without_a_role_is_the_platforms() -> None:
    assert by_admin_key("abc").bindings == (Binding("platform-admin"),)
    assert by_admin_key("abc", "tenant-admin", "risk").bindings == (Binding("tenant-admin", "risk"),)
    with pytest.raises(RoleError):
        by_admin_key("abc", "tenant-admin")


def test_a_data_key_is_an_app_of_its_tenant_and_of_no_other() -> None:
    caller = by_data_key("abc", "risk")
    assert (caller.name, caller.bindings) == ("key:abc", (Binding("app", "risk"),))
    with pytest.raises(RoleError):
        by_data_key("abc", "")
