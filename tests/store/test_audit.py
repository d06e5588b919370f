"""What every store does with the audit log, and what is noticed when somebody tampers with it."""

import hashlib
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.store.audit import EMPTY, AuditEntry, Fault, Head, chained, faults
from commonpool.store.contract import QueryError, Store
from commonpool.store.sql.base import SqlStore
from tests.store.places import Place


def entry(at_ns: int, **changes: object) -> AuditEntry:
    plain = AuditEntry(
        at_ns=at_ns,
        until_ns=at_ns,
        count=1,
        caller="key:k1",
        action="read_status",
        tenant="",
        outcome="allowed",
        method="GET",
        path="/admin/v1/status",
        peer="192.0.2.7",
        policies=("commonpool/platform.cedar:4",),
    )
    return msgspec.structs.replace(plain, **changes)


def found(store: Store, **asked: object) -> list[int]:
    question = {"filters": {}, "since_ns": 0, "until_ns": 2**62, "before": None, "limit": 100} | asked
    return [each.number for each in store.audit(**question)]  # type: ignore[arg-type] # as asked


def said(store: Store, *kept: Head) -> list[str]:
    """What is wrong with the log."""
    return [each.sentence for each in faults(store.audit_chain(0, 1000), kept) if isinstance(each, Fault)]


def test_entries_are_numbered_and_chained(store: Store) -> None:
    assert store.audit_head() == EMPTY
    head = store.add_audit([entry(5), entry(6, tenant="a", outcome="denied", until_ns=9, count=4)])
    assert store.add_audit([]) == head == store.audit_head()
    first, second = store.audit_chain(0, 10)
    assert (first.number, second.number, second.head) == (1, 2, head)
    assert second == entry(6, tenant="a", outcome="denied", until_ns=9, count=4, number=2, hash=head.hash)
    assert store.audit_chain(1, 10) == (second,)
    assert store.audit_chain(0, 1) == (first,)


def test_anybody_can_work_the_hashes_out(store: Store) -> None:
    store.add_audit([entry(5)])
    written = (
        b'[1,5,5,1,"key:k1","read_status","","allowed","GET","/admin/v1/status","192.0.2.7",'
        b'["commonpool/platform.cedar:4"]]'
    )
    assert store.audit_head().hash == hashlib.sha256(bytes(32) + written).digest()


def test_it_is_read_from_the_newest_on_in_pages(store: Store) -> None:
    store.add_audit([entry(at) for at in range(1, 6)])
    assert found(store) == [5, 4, 3, 2, 1]
    assert found(store, limit=2) == [5, 4]
    assert found(store, limit=2, before=4) == [3, 2]
    assert found(store, since_ns=2, until_ns=4) == [3, 2]


def test_filters_keep_what_has_one_of_the_values_and_none_keeps_nothing(store: Store) -> None:
    store.add_audit(
        [entry(1), entry(2, caller="local"), entry(3, tenant="a"), entry(4, tenant="b", outcome="denied", action="x")]
    )
    assert found(store, filters={"caller": ["local"]}) == [2]
    assert found(store, filters={"tenant": ["a", "b"]}) == [4, 3]
    assert found(store, filters={"tenant": ["a", "b"], "outcome": ["denied"]}) == [4]
    assert found(store, filters={"action": ["x", "read_status"], "tenant": [""]}) == [2, 1]
    assert found(store, filters={"tenant": []}) == []
    with pytest.raises(QueryError, match="cannot be filtered by 'peer'; allowed are caller, action, tenant, outcome"):
        found(store, filters={"peer": ["x"]})
    with pytest.raises(QueryError):
        found(store, until_ns=-1)


def test_a_whole_log_has_no_faults(store: Store) -> None:
    assert said(store) == []
    early = store.add_audit([entry(1)])
    head = store.add_audit([entry(2), entry(3)])
    assert said(store, early, head, EMPTY) == []
    assert list(faults(store.audit_chain(0, 10))) == [head]
    assert list(faults(())) == [EMPTY]


def test_it_is_there_after_a_restart_and_goes_on(place: Place) -> None:
    with closing(place.open()) as before:
        head = before.add_audit([entry(1)])
    with closing(place.open()) as after:
        assert after.audit_head() == head
        after.add_audit([entry(2)])
        assert said(after, head) == []


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("UPDATE audit SET outcome = 'allowed' WHERE number = 3", ["Entry 3 is not what was written"]),
        ("UPDATE audit SET policies = '[]' WHERE number = 1", ["Entry 1 is not what was written"]),
        ("UPDATE audit SET count = 8 WHERE number = 5", ["Entry 5 is not what was written"]),
        ("DELETE FROM audit WHERE number = 2", ["Entry 2 is missing."]),
        ("DELETE FROM audit WHERE number < 3", ["Entries 1 to 2 are missing."]),
        ("DELETE FROM audit WHERE number IN (2, 3)", ["Entries 2 to 3 are missing."]),
        # moved up where one was removed
        (
            "DELETE FROM audit WHERE number = 4; UPDATE audit SET number = 4 WHERE number = 5",
            ["Entry 4 is not what was written"],
        ),
        # two that changed places
        (
            (
                "UPDATE audit SET number = 9 WHERE number = 2; UPDATE audit SET number = 2 WHERE number = 3;"
                " UPDATE audit SET number = 3 WHERE number = 9"
            ),
            ["Entry 2 is not", "Entry 3 is not", "Entry 4 is not"],
        ),
        (
            (
                "INSERT INTO audit SELECT 6, at_ns, until_ns, count, caller, action, tenant, outcome, method, path,"
                " peer, policies, hash FROM audit WHERE number = 5"
            ),
            ["Entry 6 is not what was written"],
        ),
    ],
)
def test_who_touches_it_is_noticed(place: Place, script: str, wrong: list[str]) -> None:
    with closing(place.open()) as store:
        store.add_audit([entry(at, outcome="denied" if at == 3 else "allowed") for at in range(1, 6)])
    place.run(script)
    with closing(place.open()) as store:
        told = said(store)
        assert len(told) == len(wrong)
        assert all(sentence.startswith(start) for sentence, start in zip(told, wrong, strict=True))


def test_what_is_cut_off_at_the_end_is_noticed_with_a_head_that_was_kept(place: Place) -> None:
    with closing(place.open()) as store:
        store.add_audit([entry(at) for at in range(1, 4)])
        head = store.add_audit([entry(4)])
    place.run("DELETE FROM audit WHERE number > 2")
    with closing(place.open()) as store:
        assert said(store) == []  # what is left is a whole chain
        assert said(store, head) == ["The log ends at entry 2, and the head that was kept is entry 4."]
        # and what is written since does not hide it
        store.add_audit([entry(5), entry(6), entry(7)])
        assert said(store, head) == ["Entry 4 is another one than the head that was kept: it was written anew."]


@given(
    st.lists(st.integers(0, 2**62), min_size=1, max_size=12),
    st.data(),
)
def test_every_change_of_a_log_that_is_kept_by_its_head_is_noticed(times: list[int], data: st.DataObject) -> None:
    written = list(chained([entry(at) for at in times], EMPTY))
    head = written[-1].head
    at = data.draw(st.integers(0, len(written) - 1))
    match data.draw(st.sampled_from(["changed", "removed", "doubled", "moved", "anew"])):
        case "changed":
            name = data.draw(st.sampled_from(["caller", "action", "tenant", "method", "path", "peer"]))
            tampered = [*written[:at], msgspec.structs.replace(written[at], **{name: "other"}), *written[at + 1 :]]
        case "removed":
            tampered = [*written[:at], *written[at + 1 :]]
        case "doubled":
            tampered = [*written[: at + 1], written[at], *written[at + 1 :]]
        case "moved":
            tampered = [*written[:at], *written[at + 1 :], written[at]]
        case _:  # by somebody who works all hashes out again
            forged = [*times[:at], times[at] ^ 1, *times[at + 1 :]]
            tampered = list(chained([entry(each) for each in forged], EMPTY))
    told = [each for each in faults(tampered, [head]) if isinstance(each, Fault)]
    assert bool(told) == (tampered != written)


def test_a_head_is_written_and_read() -> None:
    head = Head(7, bytes(range(32)))
    assert Head.parse(f" {head}\n") == head
    for text in ("", "7", "7:", "7:00", "x:" + "00" * 32, "-1:" + "00" * 32, "7:" + "zz" * 32):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, the caller says it better
            Head.parse(text)


def test_many_at_once_keep_their_order(sql_store: SqlStore) -> None:
    def batches() -> Iterator[list[AuditEntry]]:
        for start in range(0, 3000, 1000):
            yield [entry(at) for at in range(start, start + 1000)]

    for batch in batches():
        sql_store.add_audit(batch)
    assert [each.at_ns for each in sql_store.audit_chain(0, 5000)] == list(range(3000))
    assert said(sql_store) == []
