"""How long the searches of these tests go on: briefly and the same each time, or for as long as they are told.

`COMMONPOOL_FUZZ=100` makes each of them a hundred times as long, from another seed each time. What one finds is printed
with what repeats it; keep it as an `@example` or among the cases beside the test.
"""

import os
from typing import Final

from hypothesis import HealthCheck, Phase, settings

TIMES: Final = int(os.environ.get("COMMONPOOL_FUZZ", "1"))


def search(examples: int) -> settings:
    """Settings for a search of so many examples, or of that many times what is wanted."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
