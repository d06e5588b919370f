"""Whole numbers of any size in columns of 64 bits.

Sums are of the parts x / 10^9 and x % 10^9, joined in Python. One number may pass 64 bits too: it is in two columns,
the second of which, NAME_high, counts in 10^18.
"""

PART = 1_000_000_000
HIGH_UNIT = PART * PART


def split(number: int) -> tuple[int, int]:
    """The values of NAME_high and NAME."""
    return divmod(number, HIGH_UNIT)


def joined(high: int, low: int) -> int:
    """The number that is in NAME_high and NAME."""
    return high * HIGH_UNIT + low


def summed(expression: str) -> str:
    """Two columns: the sum of an expression that fits 64 bits."""
    return both(f"({expression}) / {PART}", f"({expression}) % {PART}")


def summed_pair(name: str) -> str:
    """Two columns: the sum of a number that is in two columns itself."""
    return both(f"{name}_high * {PART} + {name} / {PART}", f"{name} % {PART}")


def both(high: str, low: str) -> str:
    """Two columns: the sums of two parts."""
    return f"coalesce(sum({high}), 0), coalesce(sum({low}), 0)"


def total(high: int, low: int) -> int:
    """The sum that was selected as two columns."""
    return high * PART + low
