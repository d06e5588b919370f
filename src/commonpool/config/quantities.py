"""Quantities as people write them, as exact integers: `2_gpu`, `18GiB`, `120s`, `1000/min`, `8k`, `2.50`, `10MB/s`.

Each `parse_…` takes text and raises QuantityError; each `format_…` is its inverse: parsing what it returns gives the
same integer. A number is decimal digits, with `_` between them where that reads better and a fraction after a point;
it may be parted from its unit by spaces or `_`. No float is ever made.
"""

import math
import re
from fractions import Fraction

import msgspec

from commonpool.config.problems import quote

TEXT_CHARS_MAX = 40
NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?"

_MIB = 1024**2
_SECOND = 1_000_000_000


class QuantityError(ValueError):
    """The text is not such a quantity; the message says what would be."""


class Scale(msgspec.Struct, frozen=True):
    """One kind of quantity: `units` says how many of the smallest one each unit is ("": no unit at all).

    `what` and `examples` go into sentences. `ceil` rounds a part of the smallest unit up instead of refusing it.
    """

    what: str
    examples: str
    units: dict[str, int | Fraction]
    smallest: str
    maximum: int
    ceil: bool = False

    @property
    def pattern(self) -> str:
        """A regular expression for the whole text, of the kind that JSON Schema and Python share."""
        # Longest first, so that "m" does not hide "ms".
        names = sorted(filter(None, self.units), key=len, reverse=True)
        unit = f"[ _]*({'|'.join(names)})" if names else "()"
        return f"^({NUMBER})(?:{unit}){'?' if '' in self.units else ''}$"

    def parse(self, text: str) -> int:
        """The quantity in its smallest unit."""
        found = re.match(self.pattern, text) if len(text) <= TEXT_CHARS_MAX and "\n" not in text else None
        if not found:
            raise QuantityError(f"{quote(text)} is not {self.what}; write it like {self.examples}")
        return self.whole(text, Fraction(found[1].replace("_", "")) * self.units[found[2] or ""])

    def whole(self, text: str, exact: Fraction) -> int:
        """`exact` as an integer, if it is one and within bounds."""
        if self.ceil:
            exact = Fraction(math.ceil(exact))
        if exact.denominator != 1:
            raise QuantityError(f"{quote(text)} is finer than {self.smallest}, the smallest part of {self.what}")
        if exact > self.maximum:
            raise QuantityError(f"{quote(text)} is more than {self.what} may be")
        return int(exact)


GPU = Scale(
    what="an amount of GPUs",
    examples="2_gpu, 0.5 gpu or 500 milli_gpu",
    units={"": 1000, "gpu": 1000, "gpus": 1000, "milli_gpu": 1},
    smallest="a thousandth of a GPU",
    maximum=10**9,
)
MEMORY = Scale(
    what="an amount of memory",
    examples="18GiB or 512MiB",
    units={
        "MiB": 1,
        "GiB": 1024,
        "TiB": 1024**2,
        **{unit: Fraction(10**power, _MIB) for unit, power in (("MB", 6), ("GB", 9), ("TB", 12))},
    },
    smallest="a MiB",
    maximum=2**40,
    ceil=True,
)
SIZE = Scale(
    what="a size",
    examples="32MiB or 512KiB",
    units={
        "B": 1,
        "KiB": 1024,
        "MiB": _MIB,
        "GiB": 1024**3,
        "kB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
    },
    smallest="a byte",
    maximum=2**40,
)
BANDWIDTH = Scale(
    what="a bandwidth in bytes",
    examples="10MB/s or 512KiB/s",
    units={f"{unit}/s": size for unit, size in SIZE.units.items()},
    smallest="a byte a second",
    maximum=2**40,
)
CORES = Scale(
    what="a number of CPU cores",
    examples="16, 0.5 or 500m",
    units={"": 1000, "core": 1000, "cores": 1000, "m": 1},
    smallest="a thousandth of a core",
    maximum=10**9,
)
TOKENS = Scale(
    what="a number of tokens",
    examples="8192, 8k (8000) or 8Ki (8192)",
    units={"": 1, "k": 1000, "M": 10**6, "Ki": 1024, "Mi": 1024**2},
    smallest="a token",
    maximum=10**12,
)
MONEY = Scale(
    what="an amount of money",
    examples="2.50",
    units={"": 10**6},
    smallest="a millionth",
    maximum=10**15,
)
PERCENT = Scale(
    what="a percentage",
    examples="80%",
    units={"%": 1},
    smallest="a whole percent",
    maximum=1000,
)
PERMILLE = Scale(
    what="a part of a price",
    examples="80% or 87.5%",
    units={"%": 10},
    smallest="a tenth of a percent",
    maximum=10_000,
)
RATE = Scale(
    what="a rate",
    examples="1000/min, 10/s or 100k/min",
    units={
        f"{many}/{per}": Fraction(number) * minute
        for many, number in (("", 1), ("k", 1000), ("M", 10**6))
        for per, minute in (("s", 60), ("min", 1), ("h", Fraction(1, 60)))
    },
    smallest="one a minute",
    maximum=10**12,
)
_DURATION_UNITS: dict[str, int | Fraction] = {
    "d": 86400 * _SECOND,
    "h": 3600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 10**6,
    "us": 1000,
    "ns": 1,
}
DURATION = Scale(
    what="a duration",
    examples="120s, 1.5s, 500ms, 2m, 1h30m or 3d",
    units=_DURATION_UNITS,
    smallest="a nanosecond",
    maximum=10 * 366 * 86400 * _SECOND,
)
_DURATION_PART = re.compile(rf"({NUMBER})[ _]*(ms|us|ns|d|h|m|s)(?: *)")
DURATION_PATTERN = rf"^(?:{NUMBER}[ _]*(?:ms|us|ns|d|h|m|s) *)+$"


def parse_gpu(text: str) -> int:
    """Thousandths of a GPU: `2_gpu`, `0.5 gpu`, `500 milli_gpu`, `2`."""
    return GPU.parse(text)


def format_gpu(milli_gpu: int) -> str:
    """`2 gpu`, `0.5 gpu`."""
    return f"{_decimal(milli_gpu, 3)} gpu"


def parse_memory(text: str) -> int:
    """MiB: `18GiB`, `512MiB`, `18GB`. A part of a MiB counts as a whole one, so that a need is never understated."""
    return MEMORY.parse(text)


def format_memory(memory_mib: int) -> str:
    """`18GiB`, `512MiB`."""
    return f"{memory_mib // 1024}GiB" if memory_mib and memory_mib % 1024 == 0 else f"{memory_mib}MiB"


def parse_size(text: str) -> int:
    """Bytes: `32MiB`, `512KiB`, `10MB`."""
    return SIZE.parse(text)


def format_size(size_bytes: int) -> str:
    """`32MiB`, `1500B`: the largest binary unit that is exact."""
    for unit, factor in (("GiB", 1024**3), ("MiB", _MIB), ("KiB", 1024)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def parse_bandwidth(text: str) -> int:
    """Bytes a second: `10MB/s`, `512KiB/s`."""
    return BANDWIDTH.parse(text)


def format_bandwidth(bytes_per_second: int) -> str:
    """`10MB/s`, `1500B/s`: the unit that is exact and has the smallest number."""
    exact = [(bytes_per_second // size, unit) for unit, size in BANDWIDTH.units.items() if not bytes_per_second % size]
    number, unit = min(exact)
    return f"{number}{unit}"


def parse_cores(text: str) -> int:
    """Thousandths of a CPU core: `16`, `0.5 cores`, `500m`."""
    return CORES.parse(text)


def format_cores(cpu_milli: int) -> str:
    """`16 cores`, `0.5 cores`."""
    return f"{_decimal(cpu_milli, 3)} {'core' if cpu_milli == CORES.units['core'] else 'cores'}"


def parse_tokens(text: str) -> int:
    """Tokens: `8192`, `8k` (8,000), `8Ki` (8,192), `1M`."""
    return TOKENS.parse(text)


def format_tokens(tokens: int) -> str:
    """Plain digits."""
    return str(tokens)


def parse_rate(text: str) -> int:
    """Per minute: `1000/min`, `10/s`, `600/h`, `100k/min`."""
    return RATE.parse(text)


def format_rate(per_minute: int) -> str:
    """`1000/min`."""
    return f"{per_minute}/min"


def parse_money(text: str) -> int:
    """Micro-units of the billing currency: `2.50`."""
    return MONEY.parse(text)


def format_money(micro: int) -> str:
    """At least two decimals: `2.50`, `0.000125`."""
    whole, _, fraction = _decimal(micro, 6).partition(".")
    return f"{whole}.{fraction:0<2}"


def format_part(micro: int, whole_micro: int) -> str:
    """A part of an amount, for people: `41.20` of 5000, `0.004` of 1; less than a thousandth of it is left out."""
    step = 10_000
    while step > 1 and step * 1000 > whole_micro:
        step //= 10
    return format_money(micro // step * step)


def parse_percent(text: str) -> int:
    """Whole percent: `80%`."""
    return PERCENT.parse(text)


def parse_permille(text: str) -> int:
    """Thousandths: `80%`, `87.5%`."""
    return PERMILLE.parse(text)


def format_permille(permille: int) -> str:
    """`80%`, `87.5%`."""
    return f"{_decimal(permille, 1)}%"


def parse_duration(text: str) -> int:
    """Nanoseconds: `120s`, `1.5s`, `500ms`, `2m`, `1h30m`, `3d`. Parts go from the largest unit to the smallest."""
    if len(text) > TEXT_CHARS_MAX or "\n" in text or not re.match(DURATION_PATTERN, text):
        hint = "; a number alone has no unit" if re.match(f"^{NUMBER}$", text) else ""
        raise QuantityError(f"{quote(text)} is not {DURATION.what}{hint}; write it like {DURATION.examples}")
    parts = [(Fraction(part[1].replace("_", "")), part[2]) for part in _DURATION_PART.finditer(text)]
    order = [list(_DURATION_UNITS).index(unit) for _, unit in parts]
    if order != sorted(set(order)):
        raise QuantityError(f"{quote(text)} names its units twice or out of order; write it like {DURATION.examples}")
    return DURATION.whole(text, sum((number * _DURATION_UNITS[unit] for number, unit in parts), start=Fraction(0)))


def format_duration(duration_ns: int) -> str:
    """One number and one unit: `120s`, `1.5s`, `0.25ms`, `10m`, `3h`, `2d`. Below ten minutes, seconds read best."""
    if duration_ns >= 600 * _SECOND:
        for unit in ("d", "h", "m"):
            whole, rest = divmod(duration_ns, int(_DURATION_UNITS[unit]))
            if not rest:
                return f"{whole}{unit}"
    if duration_ns == 0 or duration_ns >= _SECOND:
        return f"{_decimal(duration_ns, 9)}s"
    return f"{_decimal(duration_ns, 6)}ms"


def _decimal(value: int, places: int) -> str:
    """`value` / 10**places, exactly, without needless zeros."""
    whole, rest = divmod(value, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0") if rest else str(whole)
