"""Quantities are exact integers, and what is written from one is read as the same one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config import quantities as q

S = 1_000_000_000


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (q.parse_gpu, "2_gpu", 2000),
        (q.parse_gpu, "2 gpu", 2000),
        (q.parse_gpu, "2gpus", 2000),
        (q.parse_gpu, "0.5 gpu", 500),
        (q.parse_gpu, "500 milli_gpu", 500),
        (q.parse_gpu, "1_500_milli_gpu", 1500),
        (q.parse_gpu, "2", 2000),
        (q.parse_gpu, "0.001", 1),
        (q.parse_gpu, "1_000", 1_000_000),
        (q.parse_gpu, "010", 10_000),
        (q.parse_gpu, "0", 0),
        (q.parse_memory, "18GiB", 18 * 1024),
        (q.parse_memory, "512MiB", 512),
        (q.parse_memory, "1.5 GiB", 1536),
        (q.parse_memory, "18GB", 17167),  # 17,166.1 MiB: a need is never understated
        (q.parse_memory, "1TiB", 1024**2),
        (q.parse_size, "32MiB", 32 * 1024**2),
        (q.parse_size, "10MB", 10_000_000),
        (q.parse_size, "1.5kB", 1500),
        (q.parse_bandwidth, "10MB/s", 10_000_000),
        (q.parse_bandwidth, "512 KiB/s", 512 * 1024),
        (q.parse_cores, "16", 16_000),
        (q.parse_cores, "0.5 cores", 500),
        (q.parse_cores, "1 core", 1000),
        (q.parse_cores, "250m", 250),
        (q.parse_duration, "120s", 120 * S),
        (q.parse_duration, "1.5s", 3 * S // 2),
        (q.parse_duration, "500ms", S // 2),
        (q.parse_duration, "2m", 120 * S),
        (q.parse_duration, "1h30m", 5400 * S),
        (q.parse_duration, "1h 30m", 5400 * S),
        (q.parse_duration, "3d", 3 * 86400 * S),
        (q.parse_duration, "0.000000001s", 1),
        (q.parse_duration, "0s", 0),
        (q.parse_rate, "1000/min", 1000),
        (q.parse_rate, "10/s", 600),
        (q.parse_rate, "600/h", 10),
        (q.parse_rate, "100k/min", 100_000),
        (q.parse_rate, "0.5/s", 30),
        (q.parse_tokens, "8192", 8192),
        (q.parse_tokens, "8k", 8000),
        (q.parse_tokens, "8Ki", 8192),
        (q.parse_tokens, "1M", 1_000_000),
        (q.parse_tokens, "1.5M", 1_500_000),
        (q.parse_money, "2.50", 2_500_000),
        (q.parse_money, "0.1", 100_000),
        (q.parse_money, "0.000001", 1),
        (q.parse_money, "999999999.999999", 999_999_999_999_999),
    ],
)
def test_it_reads_what_people_write(parse: Callable[[str], int], text: str, value: int) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "sentence"),
    [
        (q.parse_gpu, "2 gpuz", '"2 gpuz" is not an amount of GPUs; write it like 2_gpu, 0.5 gpu or 500 milli_gpu'),
        (q.parse_gpu, "0.0001", '"0.0001" is finer than a thousandth of a GPU, the smallest part of an amount of GPUs'),
        (q.parse_gpu, "1000001", '"1000001" is more than an amount of GPUs may be'),
        (
            q.parse_duration,
            "120",
            '"120" is not a duration; a number alone has no unit; write it like 120s, 1.5s, 500ms, 2m, 1h30m or 3d',
        ),
        (
            q.parse_duration,
            "30m1h",
            '"30m1h" names its units twice or out of order; write it like 120s, 1.5s, 500ms, 2m, 1h30m or 3d',
        ),
        (q.parse_duration, "0.5ns", '"0.5ns" is finer than a nanosecond, the smallest part of a duration'),
        (q.parse_rate, "10/h", '"10/h" is finer than one a minute, the smallest part of a rate'),
        (q.parse_money, "2.5000001", '"2.5000001" is finer than a millionth, the smallest part of an amount of money'),
        (q.parse_size, "0.3B", '"0.3B" is finer than a byte, the smallest part of a size'),
        (q.parse_bandwidth, "10MB", '"10MB" is not a bandwidth in bytes; write it like 10MB/s or 512KiB/s'),
        (
            q.parse_cores,
            "0.5m",
            '"0.5m" is finer than a thousandth of a core, the smallest part of a number of CPU cores',
        ),
        (q.parse_tokens, "0.5", '"0.5" is finer than a token, the smallest part of a number of tokens'),
    ],
)
def test_an_error_says_what_is_allowed(parse: Callable[[str], int], text: str, sentence: str) -> None:
    with pytest.raises(q.QuantityError) as caught:
        parse(text)
    assert str(caught.value) == sentence


PARSERS = [
    q.parse_gpu,
    q.parse_memory,
    q.parse_size,
    q.parse_bandwidth,
    q.parse_cores,
    q.parse_duration,
    q.parse_rate,
    q.parse_tokens,
    q.parse_money,
]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1e3",
        "0x10",
        "1,5",
        ".5",
        "5.",
        "_1",
        "1__0",
        "nan",
        "inf",
        "on",
        "120:00",
        "1s1s",
        "\u0663",
        "1\n",
        "9" * 41,
        "1" * 10000,
    ],
)
def test_nothing_else_is_a_quantity(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(q.QuantityError):
        parse(text)


PAIRS: list[tuple[Callable[[str], int], Callable[[int], str], int]] = [
    (q.parse_gpu, q.format_gpu, q.GPU.maximum),
    (q.parse_memory, q.format_memory, q.MEMORY.maximum),
    (q.parse_size, q.format_size, q.SIZE.maximum),
    (q.parse_bandwidth, q.format_bandwidth, q.BANDWIDTH.maximum),
    (q.parse_cores, q.format_cores, q.CORES.maximum),
    (q.parse_duration, q.format_duration, q.DURATION.maximum),
    (q.parse_rate, q.format_rate, q.RATE.maximum),
    (q.parse_tokens, q.format_tokens, q.TOKENS.maximum),
    (q.parse_money, q.format_money, q.MONEY.maximum),
]


@given(st.data(), st.sampled_from(PAIRS))
def test_what_is_written_is_read_back(
    data: st.DataObject, pair: tuple[Callable[[str], int], Callable[[int], str], int]
) -> None:
    parse, write, maximum = pair
    # Round numbers are the ones that are written with larger units.
    unit = data.draw(st.sampled_from([1, 1000, 1024, 60 * S, 3600 * S, 86400 * S]))
    value = data.draw(st.integers(0, maximum // unit)) * unit
    assert parse(write(value)) == value


@given(st.sampled_from(PARSERS), st.text())
def test_any_text_is_a_quantity_or_one_sentence(parse: Callable[[str], int], text: str) -> None:
    try:
        said = str(parse(text))
    except q.QuantityError as error:
        said = str(error)
    assert "\n" not in said
    assert not said.startswith("-")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (q.format_gpu(2000), "2 gpu"),
        (q.format_gpu(500), "0.5 gpu"),
        (q.format_memory(18 * 1024), "18GiB"),
        (q.format_memory(1000), "1000MiB"),
        (q.format_size(32 * 1024**2), "32MiB"),
        (q.format_size(1500), "1500B"),
        (q.format_bandwidth(10_000_000), "10MB/s"),
        (q.format_bandwidth(3 * 1024**2), "3MiB/s"),
        (q.format_bandwidth(1001), "1001B/s"),
        (q.format_cores(16_000), "16 cores"),
        (q.format_cores(1000), "1 core"),
        (q.format_cores(500), "0.5 cores"),
        (q.format_duration(120 * S), "120s"),
        (q.format_duration(600 * S), "10m"),
        (q.format_duration(5400 * S), "90m"),
        (q.format_duration(3601 * S), "3601s"),
        (q.format_duration(86400 * S), "1d"),
        (q.format_duration(1_500_000), "1.5ms"),
        (q.format_duration(1_500_000_000), "1.5s"),
        (q.format_rate(1000), "1000/min"),
        (q.format_money(2_500_000), "2.50"),
        (q.format_money(125), "0.000125"),
        (q.format_money(3_000_000), "3.00"),
    ],
)
def test_it_writes_as_people_do(text: str, written: str) -> None:
    assert text == written
