"""Given what something waited for, then people read it in one line, and programs can take that line apart."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config.kinds import NAME_PATTERN
from commonpool.core import explain
from commonpool.core.model import NS_PER_S, Cause, Outcome, Reason, Wait
from tests.store.records import refused, usage_record

MS = NS_PER_S // 1000

names = st.just("") | st.from_regex(NAME_PATTERN.replace("$", r"\Z"))
waits = st.lists(st.builds(Wait, st.sampled_from(Cause), names, st.integers(0, 10**15)), max_size=12)


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("name", ["", "support"])
def test_every_cause_has_words_of_its_own(cause: Cause, name: str) -> None:
    words = explain.cause(Wait(cause, name, 1))
    assert "{" not in words.text
    assert re.fullmatch(r"[ -~]+\.", words.advice)
    others = {explain.cause(Wait(other, name, 1)).text for other in Cause if other is not cause}
    assert words.text not in others


def test_every_cause_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [cause.value for cause in Cause]


def test_a_cause_that_is_about_somebody_names_it() -> None:
    named = {cause for cause in Cause if "support" in explain.cause(Wait(cause, "support", 1)).text}
    assert named == {
        Cause.NO_REPLICA,
        Cause.SLOTS,
        Cause.DEVICES,
        Cause.CONCURRENCY,
        Cause.APP_LIMIT,
        Cause.ELASTIC_CAP,
        Cause.LOAN_DUE,
        Cause.BORROWING_DENIED,
    }


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_of_its_own(reason: Reason) -> None:
    words = explain.refusal(reason.value)
    assert words.text != reason.value
    assert re.fullmatch(r"[ -~]+\.", words.advice)
    assert words.text not in {explain.refusal(other.value).text for other in Reason if other is not reason}


def test_a_reason_of_a_newer_version_stands_for_itself() -> None:
    assert explain.refusal("too_warm") == ("too_warm", "")


def test_one_cause_of_the_whole_wait_has_no_time_of_its_own() -> None:
    wait = Wait(Cause.BORROWING_DENIED, "support", 4123 * MS)
    assert explain.sentence(4123 * MS, (wait,)) == (
        "4.1 s: tenant at its guarantee and borrowing denied while support waits for its own"
    )


def test_a_cause_of_a_part_of_the_wait_has_its_time() -> None:
    said = explain.sentence(4 * NS_PER_S, (Wait(Cause.LOAN_DUE, "support", 900 * MS),))
    assert said == "4 s: loan to support due 900 ms"


def test_the_longest_comes_first_and_what_is_alike_is_added_up() -> None:
    found = (
        Wait(Cause.OWN_QUEUE, "", 900 * MS),
        Wait(Cause.ELASTIC_CAP, "a", 1700 * MS),
        Wait(Cause.TURN, "", 0),
        Wait(Cause.ELASTIC_CAP, "a", 1500 * MS),
        Wait(Cause.ELASTIC_CAP, "b", 900 * MS),
    )
    assert explain.sentence(5 * NS_PER_S, found) == (
        "5 s: a at its elastic_cap 3.2 s, behind others of its tenant 900 ms, b at its elastic_cap 900 ms"
    )
    assert [(part.cause, part.name, part.ns) for part in explain.parts(found)] == [
        (Cause.ELASTIC_CAP, "a", 3200 * MS),
        (Cause.OWN_QUEUE, "", 900 * MS),
        (Cause.ELASTIC_CAP, "b", 900 * MS),
    ]


def test_a_line_names_the_longest_and_counts_the_rest() -> None:
    found = [Wait(Cause.BORROWING_DENIED, f"t{n}", (9 - n) * NS_PER_S) for n in range(7)]
    said = explain.sentence(42 * NS_PER_S, found)
    assert "t4 waits for its own 5 s, 2 more" in said
    assert "t5" not in said
    assert explain.header(42 * NS_PER_S, found).count(";") == explain.PARTS_SHOWN


def test_without_a_known_cause_there_is_the_time_alone() -> None:
    assert explain.sentence(2012 * MS, ()) == "2 s"
    assert explain.header(2_012_999_999, ()) == "2.012s"
    assert explain.header(0, ()) == "0.000s"


def test_the_header_has_cause_name_and_time() -> None:
    found = (Wait(Cause.OWN_QUEUE, "", 923 * MS), Wait(Cause.LOAN_DUE, "support", 3200 * MS), Wait(Cause.TURN, "", 9))
    assert explain.header(4123 * MS, found) == "4.123s; loan_due=support 3.200s; own_queue 0.923s"


@given(st.integers(0, 10**15), waits)
def test_the_header_can_be_taken_apart(wait_ns: int, found: list[Wait]) -> None:
    whole, *rest = explain.header(wait_ns, found).split("; ")
    assert int(whole.removesuffix("s").replace(".", "")) == wait_ns // MS
    taken = []
    for part in rest:
        about, time = part.rsplit(" ", 1)
        cause, _, name = about.partition("=")
        taken.append((Cause(cause), name, int(time.removesuffix("s").replace(".", ""))))
    expected = [(part.cause, part.name, part.ns // MS) for part in explain.parts(found) if part.ns >= MS]
    assert taken == expected[: explain.PARTS_SHOWN]


@given(st.integers(0, 10**15), waits)
def test_every_text_is_one_line_of_ascii(wait_ns: int, found: list[Wait]) -> None:
    for text in (explain.sentence(wait_ns, found), explain.header(wait_ns, found), explain.live(found)):
        assert re.fullmatch(r"[ -~]+", text)


@given(waits)
def test_no_time_is_lost_in_the_parts(found: list[Wait]) -> None:
    assert sum(part.ns for part in explain.parts(found)) == sum(wait.ns for wait in found)


def test_what_a_request_does_now() -> None:
    assert explain.live(None) == "running"
    assert explain.live(()) == "waiting for 0 s"
    found = (Wait(Cause.NO_REPLICA, "m", 12 * NS_PER_S),)
    assert explain.live(found) == "waiting for 12 s: no replica of m ready"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.COMPLETED, "completed; waited 3 s: every slot of m or its KV memory taken"),
        (Outcome.CANCELLED, "cancelled, its client went away; waited 3 s: every slot of m or its KV memory taken"),
        (Outcome.FAILED, "failed with status 502; waited 3 s: every slot of m or its KV memory taken"),
    ],
)
def test_what_became_of_an_attempt(outcome: Outcome, said: str) -> None:
    found = (Wait(Cause.SLOTS, "m", 3 * NS_PER_S),)
    record = usage_record(outcome=outcome, status=502, wait_ns=3 * NS_PER_S, waits=found)
    assert explain.attempt(record) == said


def test_a_refused_attempt_says_which_limit() -> None:
    record = refused("r1", reason="queue_full")
    assert explain.attempt(record) == "refused, the queue_length of its tenant, app or key was reached; did not wait"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (1, "<1 ms"),
        (420 * MS, "420 ms"),
        (NS_PER_S - 1, "999 ms"),
        (NS_PER_S, "1 s"),
        (4199 * MS, "4.1 s"),
        (200 * NS_PER_S, "3 min 20 s"),
        (18_740 * NS_PER_S, "5 h 12 min"),
    ],
)
def test_lengths_of_time(ns: int, text: str) -> None:
    assert explain.duration(ns) == text
