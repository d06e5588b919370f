"""Values that the bodies share: a moment or a length of time, and GPU time."""

from decimal import Decimal
from typing import Annotated

import msgspec

Ns = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def gpu_seconds(milli_gpu_ns: int) -> Decimal:
    """GPU thousandths × nanoseconds as GPU seconds, exactly, however many."""
    return Decimal(f"{milli_gpu_ns}E-12")
