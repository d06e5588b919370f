"""Frames: what was written whole is read, in order; what is torn or damaged is never taken for a record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.store.frames import HEAD_BYTES, MARKER, PAYLOAD_BYTES_MAX, frame, frames

payloads = st.lists(st.binary(max_size=60) | st.just(MARKER * 3), max_size=6)


def read(data: bytes) -> list[bytes]:
    return [each.payload for each in frames(data)]


@given(payloads)
def test_frames_are_read_as_written(written: list[bytes]) -> None:
    assert read(b"".join(map(frame, written))) == written


@given(payloads, st.binary(max_size=60))
def test_a_torn_frame_at_the_end_is_left_out_at_every_byte(written: list[bytes], last: bytes) -> None:
    whole, torn = b"".join(map(frame, written)), frame(last)
    for cut in range(len(torn)):
        assert read(whole + torn[:cut]) == written


@given(payloads.filter(bool), st.data())
def test_a_flipped_bit_costs_its_own_frame_only(written: list[bytes], data: st.DataObject) -> None:
    stored = bytearray(b"".join(map(frame, written)))
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= 1 << data.draw(st.integers(0, 7))
    starts = [each.start for each in frames(b"".join(map(frame, written)))]
    hit = max(number for number, start in enumerate(starts) if start <= place)
    assert read(bytes(stored)) == written[:hit] + written[hit + 1 :]


@given(payloads, st.integers(1, 4096))
def test_zeros_at_the_end_are_no_frames(written: list[bytes], zeros: int) -> None:
    assert read(b"".join(map(frame, written)) + bytes(zeros)) == written


def test_damage_shows_as_a_gap() -> None:
    one, two = frame(b"one"), frame(b"two")
    assert [(each.start, each.stop) for each in frames(one + b"damage" + two)] == [
        (0, len(one)),
        (len(one) + 6, len(one) + 6 + len(two)),
    ]


def test_a_payload_over_the_limit_is_refused() -> None:
    assert len(frame(bytes(PAYLOAD_BYTES_MAX))) == HEAD_BYTES + PAYLOAD_BYTES_MAX
    with pytest.raises(ValueError, match="1048577 bytes; at most 1048576"):
        frame(bytes(PAYLOAD_BYTES_MAX + 1))
