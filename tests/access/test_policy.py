"""Decisions: what the product's own policies say, what an operator's change, and how far a permission reaches."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.access.callers import LOCAL, NOBODY, Binding, Caller, by_admin_key, by_data_key
from commonpool.access.permissions import Permission
from commonpool.access.policy import Authority, Decision
from commonpool.access.policy_files import load
from commonpool.access.scope import EVERYTHING, NOTHING, Scope
from commonpool.config.roles import PLATFORM_ROLES, TENANT_ROLES

SHIPPED = load()
TENANTS = ("a", "b", "c")


@pytest.fixture
def authority() -> Authority:
    return Authority(SHIPPED)


def with_own(folder: Path, text: str) -> Authority:
    (folder / "own.cedar").write_text(text)
    return Authority(load(folder))


def test_what_no_policy_permits_is_denied(authority: Authority) -> None:
    stranger = Caller("key:x", "key", ())
    for permission in set(Permission) - {
        Permission.READ_HEALTH,
        Permission.READ_DESCRIPTION,
        Permission.LOG_IN,
        Permission.READ_SELF,
    }:
        assert not authority.decide(stranger, permission).allowed
        assert authority.scope(stranger, permission, TENANTS) == NOTHING
        assert authority.scope(NOBODY, permission, TENANTS) == NOTHING
    assert not authority.decide(NOBODY, Permission.READ_SELF).allowed


def test_a_decision_names_the_policy(authority: Authority) -> None:
    assert authority.decide(by_admin_key("k", "viewer"), Permission.APPLY_CONFIG) == Decision(allowed=False)
    (permits,) = authority.decide(LOCAL, Permission.APPLY_CONFIG).policies
    assert permits.startswith("commonpool/platform.cedar:")
    denied = authority.decide(LOCAL, Permission.READ_PROMPTS, "a")
    assert not denied.allowed
    assert denied.policies[0].startswith("commonpool/contents.cedar:")


def test_a_role_in_a_tenant_is_none_elsewhere(authority: Authority) -> None:
    caller = by_admin_key("k", "tenant-admin", "a")
    assert authority.scope(caller, Permission.READ_BILLS, TENANTS) == Scope(frozenset({"a"}))
    assert authority.scope(caller, Permission.APPLY_CONFIG, TENANTS) == NOTHING
    # not even in one that is called like it, or like a role of it
    for tenant in ("b", "A", "a/", "a/tenant-admin", "", "*"):
        assert not authority.decide(caller, Permission.READ_BILLS, tenant).allowed


def test_a_tenant_that_is_gone_is_its_own_still(authority: Authority) -> None:
    key = by_data_key("k", "former")
    assert authority.scope(key, Permission.READ_JOBS, TENANTS) == Scope(frozenset({"former"}))


def test_roles_add_up(authority: Authority) -> None:
    caller = Caller("account:ann", "person", (Binding("viewer", "a"), Binding("developer", "b"), Binding("finance")))
    assert authority.scope(caller, Permission.READ_STATUS, TENANTS) == Scope(frozenset({"a", "b"}))
    assert authority.scope(caller, Permission.RUN_JOBS, TENANTS) == Scope(frozenset({"b"}))
    assert authority.scope(caller, Permission.READ_BILLS, TENANTS) == EVERYTHING


def test_an_operator_ends_keys_of_tenants_and_none_of_the_platform(authority: Authority) -> None:
    operator = by_admin_key("k", "operator")
    assert authority.scope(operator, Permission.REVOKE_KEYS, TENANTS) == Scope(frozenset(TENANTS))
    assert "" not in authority.scope(operator, Permission.READ_KEYS, TENANTS)
    assert not authority.scope(operator, Permission.MANAGE_KEYS, TENANTS)


@pytest.mark.parametrize("role", [*PLATFORM_ROLES, *TENANT_ROLES])
def test_contents_are_the_tenants_own(authority: Authority, role: str) -> None:
    on_platform = role in PLATFORM_ROLES
    caller = Caller("key:k", "key", (Binding(role) if on_platform else Binding(role, "a"),))
    may = role in {"tenant-admin", "developer"}
    assert authority.scope(caller, Permission.READ_PROMPTS, TENANTS) == (Scope(frozenset({"a"})) if may else NOTHING)


def test_an_operators_own_policy_can_not_open_contents_to_the_platform(tmp_path: Path) -> None:
    authority = with_own(tmp_path, "permit (principal, action, resource);")
    for caller in (LOCAL, by_admin_key("k", "viewer"), by_data_key("k", "a"), by_admin_key("k", "viewer", "a")):
        assert authority.scope(caller, Permission.READ_PROMPTS, TENANTS) == NOTHING
    assert authority.scope(by_admin_key("k", "auditor"), Permission.APPLY_CONFIG, TENANTS).platform


def test_a_tenant_can_be_taken_out(tmp_path: Path) -> None:
    authority = with_own(tmp_path, 'forbid (principal in Role::"viewer", action, resource == Tenant::"b");')
    viewer = by_admin_key("k", "viewer")
    assert authority.scope(viewer, Permission.READ_STATUS, TENANTS) == Scope(frozenset({"a", "c"}), platform=True)
    assert authority.scope(LOCAL, Permission.READ_STATUS, TENANTS) == EVERYTHING
    # also one that is not there yet: everything would have it, too
    assert authority.scope(viewer, Permission.READ_STATUS, ("a",)) == Scope(frozenset({"a"}), platform=True)


def test_a_tenant_can_be_let_in(tmp_path: Path) -> None:
    own = 'permit (principal == Caller::"key:k", action == Action::"read_bills", resource == Tenant::"b");'
    authority = with_own(tmp_path, own)
    assert authority.scope(by_admin_key("k", "viewer", "a"), Permission.READ_BILLS, TENANTS) == Scope(frozenset({"b"}))
    assert authority.scope(by_admin_key("l", "viewer", "a"), Permission.READ_BILLS, TENANTS) == NOTHING


def test_machines_can_be_kept_from_changes(tmp_path: Path) -> None:
    own = 'forbid (principal, action in Action::"change", resource) when { principal.kind == "key" };'
    authority = with_own(tmp_path, own)
    assert not authority.decide(by_admin_key("k"), Permission.APPLY_CONFIG).allowed
    assert authority.decide(by_admin_key("k"), Permission.READ_CONFIG).allowed
    assert authority.decide(LOCAL, Permission.APPLY_CONFIG).allowed


def test_a_policy_that_fails_denies(tmp_path: Path) -> None:
    # It says nothing of itself when it overflows, and might have been meant to forbid.
    own = (
        'forbid (principal, action == Action::"read_nodes", resource)'
        ' when { 9223372036854775807 + 1 > 2 || principal.kind == "key" };'
    )
    authority = with_own(tmp_path, own)
    assert not authority.decide(LOCAL, Permission.READ_NODES).allowed
    assert authority.decide(LOCAL, Permission.READ_STATUS).allowed


def test_a_thousand_tenants_cost_as_much_as_two(tmp_path: Path) -> None:
    authority = with_own(tmp_path, 'forbid (principal in Role::"viewer", action, resource == Tenant::"t7");')
    many = [f"t{number}" for number in range(1000)]
    caller = Caller("key:k", "key", (Binding("viewer"), Binding("developer", "t5")))
    assert authority.scope(caller, Permission.READ_STATUS, many).tenants == frozenset(many) - {"t7"}
    # the platform, the tenant that is named, the caller's own, and any other
    assert authority.remembered == 4
    assert all(authority.decide(caller, Permission.READ_STATUS, tenant).allowed == (tenant != "t7") for tenant in many)
    assert authority.remembered == 4


def test_what_is_remembered_is_bounded() -> None:
    authority = Authority(SHIPPED, remember=10)
    for number in range(25):
        assert authority.decide(by_admin_key(f"k{number}", "viewer"), Permission.READ_STATUS).allowed
        assert authority.remembered <= 10


bindings = st.builds(Binding, st.sampled_from(PLATFORM_ROLES)) | st.builds(
    Binding, st.sampled_from((*TENANT_ROLES, "app")), st.sampled_from((*TENANTS, "former"))
)
OWN = """
forbid (principal in Role::"operator", action, resource == Tenant::"b");
forbid (principal, action in Action::"change", resource == Tenant::"former");
permit (principal, action == Action::"read_bills", resource is Tenant) when { principal in resource.viewers };
permit (principal in Role::"auditor", action == Action::"read_bills", resource is Tenant);
"""


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    return Authority(SHIPPED), with_own(tmp_path_factory.mktemp("policies"), OWN)


@given(st.lists(bindings, max_size=4), st.sampled_from(Permission), st.booleans())
def test_a_scope_says_what_the_decisions_one_by_one_say(
    authorities: tuple[Authority, Authority], held: list[Binding], permission: Permission, own: bool
) -> None:
    authority = authorities[own]
    caller = Caller("key:k", "key", tuple(held))
    scope = authority.scope(caller, permission, TENANTS)
    assert scope.platform == authority.decide(caller, permission).allowed
    for tenant in (*TENANTS, "former"):
        known = tenant in TENANTS or any(binding.tenant == tenant for binding in held)
        allowed = authority.decide(caller, permission, tenant).allowed
        assert (tenant in scope) == (allowed and (known or scope.tenants is None))
