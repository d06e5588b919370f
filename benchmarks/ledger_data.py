"""Generated use of a cluster of 64 GPUs, made by the database itself: requests of eight tenants, and what a pool had.

Every figure of request n follows from n. Requests arrive evenly; ids grow as the gateway's do, with a new prefix for
every two million. One in ten is borrowed, one in a hundred failed, one in a hundred was cut by its client.
"""

from collections.abc import Iterator

from commonpool.config import Config
from commonpool.config.loading import parse
from commonpool.core.ledger import Phase, Span, Standing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S

TENANTS = 8
GPUS = 64
START_NS = 1_767_225_600 * NS_PER_S  # 2026-01-01T00:00Z
CONFIG = "\n".join(
    [
        f"pools: {{main: {{gpus: {GPUS}_gpu}}}}",
        'models: {m: {version: "1", gpu: 1_gpu, slots: 8, context: 8Ki, engine: {kind: attached, urls: ["http://127.0.0.1:1"]}}}',
        "prices: {currency: EUR, gpu_hour: {main: 2.50}, meters: {million_tokens_out: 0.10, request: 0.001}}",
        "tenants:",
        *(f"  t{number}: {{tenant: {{guaranteed: 7_gpu}}}}" for number in range(TENANTS)),
    ]
)

_PREFIX = "(n / 2000000 + 1) * 6364136223846793"
_NUMBER = "n % 2000000 + 1"
_ID = {
    "sqlite": f"printf('%016x-%x', {_PREFIX}, {_NUMBER})",
    "postgresql": f"lpad(to_hex({_PREFIX}), 16, '0') || '-' || to_hex({_NUMBER})",
}
_NUMBERS = {
    "sqlite": "WITH RECURSIVE g(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM g WHERE n < {last})",
    "postgresql": "WITH g(n) AS (SELECT * FROM generate_series({first}::bigint, {last}::bigint))",
}
_WAIT = "((n % 7919) * 100000)"
_RUN = f"((2 + k % 19) * {NS_PER_S} + (n % 1000) * 1000000)"
_GPU = "(500 + 250 * (k % 5))"
_OUTCOME = "(k / 512) % 100"
_USAGE = {
    "attempt": "1",
    "tenant": "'t' || (k % 8)",
    "app": "CASE WHEN (k / 8) % 2 = 0 THEN 'assistant' ELSE 'search' END",
    "cost_center": "'cc-' || (1000 + k % 8)",
    "model": "'llama-' || ((k / 16) % 3)",
    "version": "'1'",
    "tier": "CASE WHEN (k / 8) % 2 = 0 THEN 'interactive' ELSE 'standard' END",
    "endpoint": "'chat'",
    "stream": "(k / 64) % 2",
    "pool": "'main'",
    "replica": "'llama-' || ((k / 16) % 3) || '-' || ((k / 128) % 4)",
    "outcome": f"CASE {_OUTCOME} WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' ELSE 'completed' END",
    "status": f"CASE {_OUTCOME} WHEN 0 THEN 502 WHEN 1 THEN 499 ELSE 200 END",
    "reason": "''",
    "arrived_ns": "arrived_ns",
    "wait_ns": _WAIT,
    "first_token_ns": f"{_WAIT} + 200000000",
    "total_ns": f"{_WAIT} + {_RUN}",
    "run_ns": _RUN,
    "tokens_in": f"CASE {_OUTCOME} WHEN 0 THEN 0 ELSE 200 + k % 3000 END",
    "tokens_cached": f"CASE {_OUTCOME} WHEN 0 THEN 0 ELSE k % 200 END",
    "tokens_out": f"CASE {_OUTCOME} WHEN 0 THEN 0 ELSE 20 + k % 700 END",
    "token_source": "'engine'",
    "milli_gpu": _GPU,
    "milli_gpu_ns": f"{_GPU} * {_RUN}",
    "micro_per_gpu_hour": f"CASE {_OUTCOME} WHEN 0 THEN 0 ELSE 2500000 END",
    "waits": f"""CASE WHEN n % 2 = 0 THEN '[]' ELSE '[["own_queue","",' || {_WAIT} || ']]' END""",
    "milli_gpu_ns_high": "0",
}
_LOANS = {
    "attempt": "1",
    "line": "0",
    "lender": "'t' || ((k + 1) % 8)",
    "borrower": "'t' || (k % 8)",
    "milli_gpu": f"{_GPU} / 2",
    "start_ns": f"arrived_ns + {_WAIT}",
    "end_ns": f"arrived_ns + {_WAIT} + {_RUN}",
    "reason": "'task_done'",
}


def config() -> Config:
    return parse(CONFIG)


def statements(database: str, first: int, last: int, step_ns: int) -> tuple[str, str]:
    """What makes requests `first` to `last`, one every `step_ns`, with their loans."""
    numbers = _NUMBERS[database].format(first=first, last=last)
    rows = f"(SELECT n, (n * 2654435761) % 1048576 AS k, {START_NS} + n * {step_ns} AS arrived_ns FROM g) AS r"

    def insert(table: str, columns: dict[str, str], where: str) -> str:
        made = {"request_id": _ID[database], **columns}
        return f"{numbers} INSERT INTO {table} ({', '.join(made)}) SELECT {', '.join(made.values())} FROM {rows}{where}"

    return insert("usage", _USAGE, ""), insert("loans", _LOANS, " WHERE n % 10 = 3")


def notes(hours: int) -> Iterator[Standing | Span]:
    """What the pool had, and what its replicas did."""
    guaranteed = {f"tenant:t{number}": 7000 for number in range(TENANTS)}
    for start in range(START_NS, START_NS + hours * NS_PER_HOUR, NS_PER_HOUR):
        end = start + NS_PER_HOUR
        yield Standing("main", start, end, GPUS * 1000, guaranteed)
        for number in range(GPUS):
            for phase in (Phase.SERVING, Phase.HELD):
                yield Span(f"llama-{number}", phase, "main", "llama", "platform", 1000, start, end)
