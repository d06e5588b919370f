"""Of what the API says about waits and promises, what the console shows."""

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Quantiles of times, None where there are none."""

    count: int = 0
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


class Burn(msgspec.Struct, frozen=True):
    over_ns: int
    rate: float | None


class Rule(msgspec.Struct, frozen=True):
    severity: str


class Promise(msgspec.Struct, frozen=True):
    """One promise of one tenant and tier: `name` is queue or first_token."""

    tenant: str
    tier: str
    name: str
    target_ns: int | None
    spread: Spread
    burns: tuple[Burn, ...] = ()
    burning: Rule | None = None


class Promises(msgspec.Struct, frozen=True):
    at_ns: int
    promises: tuple[Promise, ...]


class WaitRow(msgspec.Struct, frozen=True):
    group: tuple[str, ...]
    completed: int
    failed: int
    cancelled: int
    abandoned: int
    refused: dict[str, int]
    wait: Spread
    first_token: Spread


class WaitTable(msgspec.Struct, frozen=True):
    since_ns: int
    until_ns: int
    rows: tuple[WaitRow, ...]
    total: WaitRow
