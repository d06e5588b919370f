"""What is said of advice: quotas learned from the past, their test, and what they would change. Units as in `wire`."""

from typing import Literal

import msgspec

from commonpool.api.wire import config as wire
from commonpool.config import Change
from commonpool.core.advice import Advice, Verdict
from commonpool.core.findings import Finding


class SetupResult(msgspec.Struct, frozen=True):
    """One way to divide the GPUs on the second half. `cost_micro`: what its GPUs cost in that time, idle or not."""

    name: str
    milli_gpu: int
    cost_micro: int
    tenants: tuple[Verdict, ...]


class PoolPlan(msgspec.Struct, frozen=True):
    """One pool: the advice, and the test of it beside the alternatives."""

    pool: str
    advice: Advice
    tested: tuple[SetupResult, ...]


class Plan(msgspec.Struct, frozen=True):
    """Learned from `since_ns` to `split_ns`, tested from there to `until_ns`."""

    source: str
    since_ns: int
    split_ns: int
    until_ns: int
    pools: tuple[PoolPlan, ...]
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    written: tuple[str, ...] = ()


class Advised(msgspec.Struct, frozen=True):
    """The advice of the last two weeks. It is made when it is asked for, one at a time, and given for an hour.

    `state` says whether it is made or still being made, or could not be; then `message` says why. `wanted` is the
    configuration with the advised quotas, made from the revision that it names. `made_ns` is 0 until it is made.
    """

    state: Literal["making", "made", "failed"]
    made_ns: int = 0
    message: str = ""
    currency: str = ""
    plan: Plan | None = None
    wanted: wire.Configuration | None = None
