"""The table of conditions, and what makes two troubles the same alert."""

import msgspec
import pytest

from commonpool.core.alerts import CONDITIONS, Condition, Severity
from tests.core.troubles import ALL, DOWN


def test_severities_are_in_order() -> None:
    assert [each.rank for each in (Severity.INFO, Severity.WARNING, Severity.CRITICAL)] == [0, 1, 2]


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=lambda condition: condition.name)
def test_each_says_what_it_means_and_what_to_do(condition: Condition) -> None:
    for sentence in (condition.meaning, condition.advice):
        assert sentence.endswith(".")
        assert sentence.isascii()
        assert "|" not in sentence  # the docs have it in a table
    assert condition.for_ns >= 0
    assert condition.keep_ns >= 0


def test_an_alert_is_the_same_whatever_its_sentence_says() -> None:
    assert msgspec.structs.replace(DOWN, sentence="Another one.").id == DOWN.id
    other = msgspec.structs.replace(DOWN, about=(("model", "n"),))
    assert len({each.id for each in (*ALL, other)}) == len(ALL) + 1
