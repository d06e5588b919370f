"""Records to learn from: research works by day and support by night, for two days."""

import random

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, UsageRecord
from tests.store.records import usage_record

DAYS = 2


def history(until_ns: int) -> list[UsageRecord]:
    """Some requests of a minute in each hour, in order of arrival, until then."""
    chance = random.Random(7)
    hours = 24 * DAYS
    found = [
        usage_record(
            f"r{hour}-{number}",
            tenant="research" if 8 <= hour % 24 < 20 else "support",
            app="default",
            model="echo",
            arrived_ns=until_ns - (hours - hour) * NS_PER_HOUR + int(chance.random() * NS_PER_HOUR),
            wait_ns=NS_PER_S,
            total_ns=60 * NS_PER_S,
            run_ns=59 * NS_PER_S,
            milli_gpu=500,
            milli_gpu_ns=500 * 59 * NS_PER_S,
        )
        for hour in range(hours)
        for number in range(8)
    ]
    return sorted(found, key=lambda record: record.arrived_ns)
