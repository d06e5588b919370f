"""What is said by name is, in English, what `core.explain` says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core import explain, story
from commonpool.core.english import SENTENCES, english
from commonpool.core.model import RECALLED, STOPPED, Cause, Outcome, Reason, UsageRecord, Wait
from commonpool.core.said import Said, Value, clauses, fill, names, say
from commonpool.core.scaling import Why
from tests.core.ledgers import record

WAITS = st.lists(
    st.builds(Wait, st.sampled_from(Cause), st.sampled_from(["", "support", "chat"]), st.integers(0, 10**13)),
    max_size=9,
)


@given(WAITS, st.integers(0, 10**9))
def test_a_wait_is_said_alike(waits: list[Wait], more: int) -> None:
    length = sum(wait.ns for wait in waits) + more
    assert english(story.waited(length, waits)) == explain.sentence(length, waits)
    assert english(story.live(waits)) == explain.live(waits)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("reason", ["", RECALLED, STOPPED, "of_a_newer_version", *Reason])
def test_an_end_is_said_alike(outcome: Outcome, reason: str) -> None:
    of = record(outcome=outcome, reason=reason, status=502)
    assert isinstance(of, UsageRecord)
    assert english(story.ended(of)) == explain.ended(of)


@pytest.mark.parametrize("why", [*Why, "of a newer version"])
def test_why_a_model_has_its_replicas_is_said_alike(why: str) -> None:
    said = story.why(why)
    assert (english(said) if isinstance(said, Said) else said) == explain.scaling(why)


def test_a_list_is_divided_by_commas_and_a_single_clause_stands_alone() -> None:
    parts = story.loan("support", 1500), story.loan("", 500)
    borrows = say("job.borrows", loans=parts)
    assert english(clauses(borrows, None)) == "of which it borrows 1.5 gpu of support, 0.5 gpu of the unowned part"
    both = clauses(borrows, say("job.waited", wait_ns=3_000_000_000))
    assert english(both) == f"{english(borrows)}, after it waited 3 s"


def test_what_is_not_given_is_an_error() -> None:
    with pytest.raises(KeyError):
        english(say("loan.due", lender="support"))
    with pytest.raises(KeyError):
        english(say("nothing.like.that"))


def test_a_value_is_not_filled_in_again() -> None:
    assert fill("{a} of {b}", {"a": "{b}", "b": "x"}, lambda _, value: str(value)) == "{b} of x"
    assert names("{a} of {b}") == {"a", "b"}


def test_every_sentence_can_be_said() -> None:
    for name, words in SENTENCES.items():
        values: dict[str, Value] = {
            each: 1 if each.endswith(("_ns", "milli_gpu", "_tenths")) else "x" for each in names(words)
        }
        assert "{" not in english(Said(name, values)), name
