"""Bytes in the pieces in which a network may bring them."""

import itertools
from collections.abc import Iterator

from hypothesis import strategies as st

# Where to cut, in thousandths of the whole: what is drawn need not know how long that is. None: after each byte.
CUTS = st.none() | st.lists(st.integers(0, 1000), max_size=6)


def cut(data: bytes, at: list[int] | None) -> Iterator[bytes]:
    """`data` in pieces, none of them empty."""
    edges = range(len(data) + 1) if at is None else sorted({0, len(data), *(len(data) * each // 1000 for each in at)})
    return (data[start:end] for start, end in itertools.pairwise(edges))


@st.composite
def mutated(draw: st.DrawFn, whole: bytes, pieces: list[bytes]) -> bytes:
    """`whole` with bytes left out, doubled, or replaced by one of `pieces` or by anything, in up to three places."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(whole)))
        end = draw(st.integers(start, min(len(whole), start + 12)))
        new = draw(st.sampled_from(pieces) | st.binary(max_size=3) | st.just(2 * whole[start:end]))
        whole = whole[:start] + new + whole[end:]
    return whole
