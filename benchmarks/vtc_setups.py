"""The set-ups by which virtual token counters were published, on our machine: `python -m benchmarks.vtc_setups`.

Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024; rates, lengths and times as in the authors'
artifact (Ying1123/VTC-artifact, fair_bench/exp_suite.py): Llama-2-7b on one A10G, M = 10,000 KV tokens, a prompt token
costs 1 and an output token 2. The production `Machine` decides; what it drives here is an engine under continuous
batching that works token by token, so that service is seen as it is given.

Two clients are *backlogged* while each has a request waiting. The *gap* is how much more of service / weight one of
them has received than the other since that began: the paper's measure of fairness. Where all clients are overloaded
from the start it is the difference of the accumulated service that its figures show.

The ways to charge the counters differ in what is known of a request's output: nothing, so that each token is charged
when it comes (the paper's VTC); what its flow has shown before (the product), alone or corrected while it runs; or its
true length. The machine charges half of what it expects at the dispatch, the paper's oracle all of it.
"""

import heapq
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from commonpool.core.effects import Dispatch, Refuse
from commonpool.core.events import Arrived, Ended, Event, Produced, ReplicaReady, Ticked
from commonpool.core.machine import Machine
from commonpool.core.model import (
    NS_PER_S,
    Deployment,
    Outcome,
    Policy,
    Pool,
    Replica,
    Request,
    Tenant,
    Tier,
    Usage,
)
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST
from commonpool.simulator.cluster import Speed
from commonpool.simulator.policies import POLICIES, SharingPolicy, machine_for, prepared

KV_TOKENS: Final = 10_000
SEQUENCES_MAX: Final = 1000  # the artifact's default: the KV tokens bound the batch, not this
CONTEXT_TOKENS: Final = 2048
# Calibrated to the 1.71 requests/s of 256 + 256 tokens, and the 11 s each from its first token to its last, that the
# artifact has for this engine (fair_bench/FCFS/all_results_overload-multi.jsonl).
A10G: Final = Speed(prefill_token_ns=200_000, step_ns=30_000_000, step_sequence_ns=500_000, load_ns=0)
SEED: Final = 1
# Published for the first of the set-ups below: FCFS, VTC, VTC that knows the true lengths. And for the second.
PUBLISHED_GAPS: Final = (23_899, 3_840, 2_304)
PUBLISHED_SHARE_ERROR: Final = 0.3
# What the paper proves: 2 × the most that the KV tokens can hold, all of it output.
GAP_BOUND: Final = 2 * OUTPUT_COST * KV_TOKENS

_MODEL: Final = "llama-2-7b"
_TIER: Final = "interactive"
_POOL_MILLI_GPU: Final = 1000


class Client(msgspec.Struct, frozen=True):
    """Who asks: requests per 1,000 s; prompt and output of each between two lengths; whether every other minute only.

    `weight` is its weight in the contest.
    """

    per_1000_s: int
    tokens_in: tuple[int, int] = (256, 256)
    tokens_out: tuple[int, int] = (256, 256)
    weight: int = 1
    on_off: bool = False


class Setup(msgspec.Struct, frozen=True):
    """Clients, for how long they ask, and whether their requests come by chance (Poisson) or evenly."""

    name: str
    clients: tuple[Client, ...]
    seconds: int = 600
    poisson: bool = False


class Charging(msgspec.Struct, frozen=True):
    """Who shares, and how its counters are charged: for what it `expects` of an output, corrected every
    `produced_every` tokens (0: at the end).
    """

    name: str
    sharing: SharingPolicy
    expects: Literal["learned", "nothing", "truth"] = "learned"
    produced_every: int = 0


class Row(msgspec.Struct, frozen=True):
    """What one set-up came to under one way to charge. Gaps in units of service (a prompt token is 1) per weight.

    `share_errors`: by how many percent of all service each client missed its weight's share, since all were backlogged;
    empty where some client asks for less, for then none is owed.
    """

    setup: str
    charging: str
    gap_max: int
    gap_end: int
    tokens_per_s: int
    share_errors: tuple[float, ...]


_SHORT: Final = (64, 64)
_HALF: Final = (512, 512)
_TINY: Final = (32, 32)
_WIDE: Final = (16, 511)

EIGHT: Final = Setup("8 clients overloaded", (Client(400),) * 3 + (Client(600),) * 5, seconds=360)
WEIGHTS: Final = Setup("weights 1:2:3:4", tuple(Client(400 * n, weight=n) for n in (1, 2, 3, 4)), seconds=360)
# Not published: there demand is in proportion to the weights, so that FCFS keeps them as well.
WEIGHTS_ALIKE: Final = Setup("weights, equal demand", tuple(Client(1200, weight=n) for n in (1, 2, 3, 4)), seconds=360)
SHORT_LONG: Final = Setup("short and long requests", (Client(8000, _SHORT, _SHORT), Client(1500)), poisson=True)
PROMPTS_OUTPUTS: Final = Setup(
    "long prompts, long outputs", (Client(8000, _HALF, _TINY), Client(1500, _TINY, _HALF)), poisson=True
)
ON_OFF_BELOW: Final = Setup("on/off, below its share", (Client(500, on_off=True), Client(2000)))
ON_OFF_OVER: Final = Setup("on/off, overloaded", (Client(2000, on_off=True), Client(3000)))
ON_OFF_WIDE: Final = Setup(
    "on/off, lengths 16 to 511",
    (Client(500, _WIDE, _WIDE, on_off=True), Client(2000, _WIDE, _WIDE)),
    poisson=True,
)
SETUPS: Final = (EIGHT, WEIGHTS, WEIGHTS_ALIKE, SHORT_LONG, PROMPTS_OUTPUTS, ON_OFF_BELOW, ON_OFF_OVER, ON_OFF_WIDE)
FCFS: Final = Charging("fcfs", POLICIES["fifo"])
AS_PRODUCED: Final = Charging("as produced", POLICIES["vtc"], "nothing", 1)
LEARNED: Final = Charging("learned", POLICIES["vtc"])
CORRECTED: Final = Charging("learned, corrected every 16", POLICIES["vtc"], "learned", 16)
TRUTH: Final = Charging("true lengths", POLICIES["vtc"], "truth")
CHARGINGS: Final = (FCFS, AS_PRODUCED, LEARNED, CORRECTED, TRUTH)


def rows(
    setups: Sequence[Setup] = SETUPS, chargings: Sequence[Charging] = CHARGINGS, seed: int = SEED
) -> Iterator[Row]:
    """Every set-up under every way to charge, in order. The same seed gives the same rows."""
    for setup in setups:
        for charging in chargings:
            yield Run(setup, charging, seed).row()


# -- what is asked -----------------------------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True, order=True):
    """A request to come: when, whose (the client's place), which, and how long it will be."""

    at: int
    client: int
    number: int
    tokens_in: int
    tokens_out: int


def asked(setup: Setup, seed: int) -> Iterator[Asked]:
    """The requests of all clients by time. Each client draws from a source of its own."""
    return heapq.merge(*(_asked(setup, n, seed) for n in range(len(setup.clients))))


def _asked(setup: Setup, client: int, seed: int) -> Iterator[Asked]:
    chance = random.Random(f"{seed}:{client}")
    its = setup.clients[client]
    between = 1000 * NS_PER_S // its.per_1000_s
    at = chance.randrange(between)
    for number in itertools.count():
        at += int(chance.expovariate(1) * between) if setup.poisson else between
        if at >= setup.seconds * NS_PER_S:
            return
        tokens_in, tokens_out = chance.randint(*its.tokens_in), chance.randint(*its.tokens_out)
        if not (its.on_off and at // NS_PER_S // 60 % 2):
            yield Asked(at, client, number, tokens_in, tokens_out)


def _policy(setup: Setup) -> Policy:
    whole = _POOL_MILLI_GPU
    tenants = [
        Tenant(f"client-{n}", "main", 0, whole, whole, {_TIER: 0}, max_wait_ns=NS_PER_S, weight=client.weight)
        for n, client in enumerate(setup.clients)
    ]
    return Policy(
        pools={"main": Pool("main", whole)},
        tiers={_TIER: Tier(_TIER)},
        groups={},
        tenants={tenant.name: tenant for tenant in tenants},
        deployments={_MODEL: Deployment(_MODEL, "1", "main", whole, SEQUENCES_MAX, KV_TOKENS, CONTEXT_TOKENS)},
        prices={},
    )


# -- what is given -----------------------------------------------------------------------------------------------------


class Gaps:
    """The service of each client, and how far apart those who wait at the same time have come.

    Service is kept per weight, in parts so small that it is whole for every weight.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self.waiting = [0] * len(weights)
        self.service = [0] * len(weights)
        self.largest = 0
        self.now = 0
        self._scale = math.lcm(*weights)
        self._factors = [self._scale // weight for weight in weights]
        self._spells = [0] * len(weights)  # how often each has had nothing waiting
        self._since: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}  # of a pair: its spells, its lead then
        self._free: list[int] = []  # the service of each before all were backlogged: nobody was kept from more

    def served(self, client: int, service: int) -> None:
        self.service[client] += service

    def arrived(self, client: int) -> None:
        self.waiting[client] += 1

    def dispatched(self, client: int) -> None:
        self.waiting[client] -= 1
        self._spells[client] += not self.waiting[client]

    def look(self) -> None:
        """After each step of the engine."""
        if not self._free and all(self.waiting):
            self._free = list(self.service)
        backlogged = [client for client, waiting in enumerate(self.waiting) if waiting]
        per_weight = [service * factor for service, factor in zip(self.service, self._factors, strict=True)]
        gap = 0
        for pair in itertools.combinations(backlogged, 2):
            one, other = pair
            spells = self._spells[one], self._spells[other]
            lead = per_weight[one] - per_weight[other]
            since = self._since.get(pair)
            if since is None or since[0] != spells:
                self._since[pair] = spells, lead
            else:
                gap = max(gap, abs(lead - since[1]))
        self.now = gap // self._scale
        self.largest = max(self.largest, self.now)

    def share_errors(self) -> tuple[float, ...]:
        """In percent of all service since all were backlogged; empty if they never were."""
        weights = [self._scale // factor for factor in self._factors]
        given = [service - free for service, free in zip(self.service, self._free, strict=False)]
        return tuple(
            100 * (part / sum(given) - weight / sum(weights)) for part, weight in zip(given, weights, strict=False)
        )


class Serving:
    """A request on the engine."""

    __slots__ = ("asked", "attempt", "first_token_at", "id", "produced")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.id = _id(asked)
        self.attempt = 0
        self.produced = 0
        self.first_token_at = 0


class Run:
    """One set-up under one way to charge: the machine, the engine, and the clock of both."""

    def __init__(self, setup: Setup, charging: Charging, seed: int) -> None:
        self._setup = setup
        self._charging = charging
        policy = _policy(setup)
        self._machine: Machine = machine_for(charging.sharing, policy)
        self._decides = prepared(charging.sharing, policy, self._machine)
        self._arrivals = asked(setup, seed)
        self._next = next(self._arrivals, None)
        self._known: dict[str, Serving] = {}  # by id, until they have ended
        self._joining: list[Serving] = []
        self._running: list[Serving] = []
        self._gaps = Gaps([client.weight for client in setup.clients])
        self._tokens = 0

    def row(self) -> Row:
        """Work until the clients ask no more."""
        end = self._setup.seconds * NS_PER_S
        self._tell(ReplicaReady(Replica("a10g", _MODEL, _POOL_MILLI_GPU, SEQUENCES_MAX, KV_TOKENS)), 0)
        now = 0
        while now < end:
            now = self._step(now, end)
        gaps = self._gaps
        owed = not any(client.on_off for client in self._setup.clients)
        return Row(
            self._setup.name,
            self._charging.name,
            gaps.largest,
            gaps.now,
            self._tokens // self._setup.seconds,
            gaps.share_errors() if owed else (),
        )

    def _step(self, now: int, end: int) -> int:
        """The engine reads the prompts of those that joined, and gives each of the others a token; then it is later."""
        joined, self._joining = self._joining, []
        running = self._running
        if not joined and not running:
            after = end if self._next is None else self._next.at
            self._arrive(after)
            return after
        after = now + sum(serving.asked.tokens_in for serving in joined) * A10G.prefill_token_ns
        if running:
            after += A10G.step_ns + len(running) * A10G.step_sequence_ns
        self._arrive(after)
        if now // NS_PER_S != after // NS_PER_S:
            self._tell(Ticked(), after)
        for serving in joined:
            self._serve(serving, INPUT_COST * serving.asked.tokens_in, serving.asked.tokens_in)
            serving.first_token_at = after
        self._running = running = running + joined
        for serving in running:
            self._serve(serving, OUTPUT_COST, 1)
            serving.produced += 1
        self._gaps.look()
        self._report(after)
        return after

    def _serve(self, serving: Serving, service: int, tokens: int) -> None:
        self._gaps.served(serving.asked.client, service)
        self._tokens += tokens

    def _report(self, now: int) -> None:
        """What the machine is told of the step: how far some have come, and who has ended."""
        every = self._charging.produced_every
        ended = [serving for serving in self._running if serving.produced >= serving.asked.tokens_out]
        self._running = [serving for serving in self._running if serving.produced < serving.asked.tokens_out]
        if every:
            for serving in self._running:
                if serving.produced % every == 0:
                    self._tell(Produced(serving.id, serving.produced), now)
        for serving in ended:
            del self._known[serving.id]
            usage = Usage(serving.asked.tokens_in, 0, serving.asked.tokens_out)
            event = Ended(serving.id, serving.attempt, Outcome.COMPLETED, usage, 200, serving.first_token_at)
            self._tell(event, now)

    def _arrive(self, until: int) -> None:
        while self._next is not None and self._next.at <= until:
            asked, self._next = self._next, next(self._arrivals, None)
            serving = self._known[_id(asked)] = Serving(asked)
            tenant = f"client-{asked.client}"
            self._expect(tenant, asked)
            self._gaps.arrived(asked.client)
            # The bound is the true length, as the artifact's clients set it and its engine reserves memory.
            request = Request(
                serving.id, tenant, "app", _MODEL, _TIER, "completions", asked.tokens_in, asked.tokens_out
            )
            self._tell(Arrived(request), asked.at)

    def _expect(self, tenant: str, asked: Asked) -> None:
        """Put in the place of what the flow has learned what this way to charge knows."""
        expects = self._charging.expects
        if expects != "learned":
            state = self._machine.state
            flow = state.flow(tenant, state.accounts[tenant], state.sites[_MODEL])
            flow.expected["app"] = asked.tokens_out if expects == "truth" else 1

    def _tell(self, event: Event, now: int) -> None:
        for effect in self._decides.handle(event, now):
            if isinstance(effect, Dispatch):
                serving = self._known[effect.request_id]
                serving.attempt = effect.attempt
                self._joining.append(serving)
                self._gaps.dispatched(serving.asked.client)
            elif isinstance(effect, Refuse):
                raise SystemExit(f"Nothing may be refused here: {effect.message}")


def _id(asked: Asked) -> str:
    return f"{asked.client}-{asked.number}"


def main() -> None:
    print(f"{'set-up':28}{'charged':30}{'largest gap':>12}{'at the end':>12}{'tokens/s':>10}  share errors, % of all")
    for row in rows():
        errors = " ".join(f"{error:+.2f}" for error in row.share_errors)
        print(
            f"{row.setup:28}{row.charging:30}{row.gap_max:>12,}{row.gap_end:>12,}{row.tokens_per_s:>10,}  {errors}",
            flush=True,
        )
    fcfs, counters, truth = PUBLISHED_GAPS
    print(f"\nPublished: {EIGHT.name}, FCFS {fcfs:,}, VTC {counters:,}, true lengths {truth:,}; ", end="")
    print(f"{WEIGHTS.name} kept within {PUBLISHED_SHARE_ERROR} %. Proved: a gap of at most {GAP_BOUND:,}.")


if __name__ == "__main__":
    main()
