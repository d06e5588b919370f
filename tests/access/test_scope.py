"""A scope in a question: what it leaves out, and that leaving everything out is not the same as leaving nothing out."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.access.scope import EVERYTHING, NOTHING, Scope

OWN = Scope(frozenset({"a", "b"}))
TENANTS = {"a": 1, "b": 2, "c": 3}

names = st.sampled_from(["a", "b", "c", "d"])
scopes = st.builds(Scope, st.none() | st.frozensets(names), st.booleans())


def test_what_belongs_to_no_tenant_is_the_platforms() -> None:
    assert "" in EVERYTHING
    assert "" in Scope(frozenset(), platform=True)
    assert "" not in OWN
    assert "" not in Scope(None)


def test_everything_has_those_that_are_gone() -> None:
    assert "former" in EVERYTHING
    assert EVERYTHING.names() is None
    assert EVERYTHING.names(["c"]) == ("c",)
    assert EVERYTHING.filters({"model": ["m"]}) == {"model": ["m"]}
    assert EVERYTHING.of(TENANTS) == TENANTS


def test_nothing_is_not_everything() -> None:
    assert not NOTHING
    assert NOTHING.names() == ()
    assert NOTHING.names(["a"]) == ()
    assert NOTHING.filters({}) == {"tenant": ()}
    assert NOTHING.of(TENANTS) == {}


def test_a_question_is_narrowed() -> None:
    assert OWN.names() == ("a", "b")
    assert OWN.names(["b", "c"]) == ("b",)
    assert OWN.names(["c"]) == ()
    assert OWN.filters({"tenant": ["c"], "model": ["m"]}) == {"tenant": (), "model": ["m"]}
    assert OWN.filters({"model": ["m"]}) == {"tenant": ("a", "b"), "model": ["m"]}
    assert OWN.of(TENANTS) == {"a": 1, "b": 2}


def test_the_only_one() -> None:
    assert Scope(frozenset({"a"})).single == "a"
    assert OWN.single == NOTHING.single == EVERYTHING.single == ""


@given(scopes, st.lists(names))
def test_no_question_reaches_beyond_its_scope(scope: Scope, wanted: list[str]) -> None:
    asked = scope.names(wanted)
    if asked is None:
        assert scope.tenants is None
        assert not wanted
    else:
        assert all(name in scope for name in asked)
        assert set(asked) == {name for name in (wanted or TENANTS | {"d": 4}) if name in scope}
    assert bool(scope) == (scope.platform or any(name in scope for name in (*TENANTS, "d")))
