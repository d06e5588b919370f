"""Keys as text: typos are recognised, secrets are masked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.keys import ALPHABET, ID, ID_LENGTH, KEY_LENGTH, SECRET_LENGTH, is_key, key_text, redact

ids = st.text(ALPHABET, min_size=ID_LENGTH, max_size=ID_LENGTH)
secrets = st.text(ALPHABET, min_size=SECRET_LENGTH, max_size=SECRET_LENGTH)


@given(ids, secrets)
def test_a_key_says_that_it_is_one(key_id: str, secret: str) -> None:
    text = key_text(key_id, secret)
    assert is_key(text)
    assert len(text) == KEY_LENGTH
    assert text[ID] == key_id


@given(ids, secrets, st.integers(0, KEY_LENGTH - 1), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(key_id: str, secret: str, place: int, character: str) -> None:
    text = key_text(key_id, secret)
    typo = text[:place] + character + text[place + 1 :]
    assert is_key(typo) == (typo == text)


@pytest.mark.parametrize("text", ["", "cp_", "sk-1234", "cp_0123456789_short"])
def test_other_texts_are_no_keys(text: str) -> None:
    assert not is_key(text)


@given(ids, secrets, st.text(" \n\"'{}:/,", max_size=3), st.text(" \n\"'{}:/,", max_size=3))
def test_the_secret_is_masked_and_the_id_stays(key_id: str, secret: str, before: str, after: str) -> None:
    text = key_text(key_id, secret)
    assert redact(f"{before}{text}{after}{text}") == f"{before}cp_{key_id}_***{after}cp_{key_id}_***"


def test_a_cut_key_is_masked_too() -> None:
    assert redact("key cp_0123456789_abc refused") == "key cp_0123456789_*** refused"


def test_other_text_stays() -> None:
    assert redact("the file cp_notes.txt") == "the file cp_notes.txt"
