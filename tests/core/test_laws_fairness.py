"""The law of the contest: the service gap between tenants that are both backlogged stays bounded.

DESIGN section 2, rule 2: under 2·max(w_p·L_in, w_q·M), where L_in is the longest prompt, M the KV tokens of the whole
deployment, w_p = 1 and w_q = 2, and a tenant's service counts by its weight.
"""

from collections import Counter
from itertools import combinations
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.effects import Effect, Settle
from commonpool.core.events import Event, ReplicaReady
from commonpool.core.model import Deployment, Outcome, Policy, Replica
from tests.core.worlds import Paced, S, policy, tenant

INPUT_MAX = 400
CONTEXT = 500


class Fair(Paced):
    """A world that says how much service each tenant has been given until now.

    The prompt counts at dispatch, the output as it is produced, an attempt that failed not at all.
    """

    def __init__(self, rules: Policy) -> None:
        self.ended: Counter[str] = Counter()
        super().__init__(rules, replicas=0)

    def send(self, event: Event) -> list[Effect]:
        effects = super().send(event)
        for effect in effects:
            if isinstance(effect, Settle) and effect.record.replica:
                self.ended[effect.record.tenant] += effect.record.tokens_in + 2 * effect.record.tokens_out
        return effects

    def given_to(self, name: str) -> int:
        return self.ended[name] + sum(self.so_far(each) for each in self.running if each.startswith(f"{name}:"))

    def so_far(self, request: str) -> int:
        produced = (self.now - self.began[request]) // self.ns_per_token - self.tokens_in[request]
        return self.tokens_in[request] + min(2 * self.out[request], max(0, produced))


@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_the_gap_between_backlogged_tenants_is_bounded(seed: int) -> None:
    """Over several replicas, lengths, weights; with requests cancelled, failed, and much shorter than they may be.

    "off" and "on" come and go, so that what they are lifted to counts as well.
    """
    random = Random(seed)
    replicas, slots, kv = random.choice([1, 2, 4]), random.choice([4, 8]), random.choice([1500, 3000])
    weight = {name: random.choice([1, 1, 2, 4]) for name in ("a", "b", "c", "on", "off")}
    longest = {name: (random.choice([20, INPUT_MAX]), random.choice([10, 100])) for name in weight}
    rules = policy(
        *(tenant(name, weight=weight[name], max_wait_ns=10**15, elastic_cap=8000) for name in weight),
        milli_gpu=2000 * replicas,
        deployments={"m": Deployment("m", "1", "main", 2000, slots, kv, CONTEXT)},
    )
    world = Fair(rules)
    for n in range(replicas):
        world.send(ReplicaReady(Replica(f"m-{n}", "m", 2000, slots, kv)))
    bound = 2 * max(INPUT_MAX, 2 * replicas * kv)
    active = dict.fromkeys(weight, True)
    since: dict[tuple[str, str], int] = {}
    made = 0
    for _ in range(300):
        for name in ("on", "off"):
            active[name] ^= random.random() < 0.05
        accounts = world.machine.state.accounts
        for name in weight:
            while active[name] and accounts[name].waiting < 2 * slots * replicas:
                made += 1
                request = f"{name}:{made}"
                input_max, output_max = longest[name]
                world.out[request] = random.randint(1, output_max)
                if not random.randrange(10):
                    world.fates[request] = random.choice([(Outcome.FAILED, True), (Outcome.CANCELLED, False)])
                world.arrive(request, name, tokens_in=random.randint(1, input_max), tokens_out_max=output_max)
                if not random.randrange(10):
                    world.cancel(f"{name}:{random.randint(1, made)}")
        world.until(world.now + S)
        service = {name: world.given_to(name) for name in weight}
        for one, other in combinations(weight, 2):
            gap = service[one] * weight[other] - service[other] * weight[one]
            if accounts[one].waiting and accounts[other].waiting:
                before = since.setdefault((one, other), gap)
                assert abs(gap - before) <= bound * max(weight[one], weight[other]), (one, other)
            else:
                since.pop((one, other), None)


def test_long_requests_get_their_share_though_room_comes_free_in_small_parts() -> None:
    shape = Deployment("m", "1", "main", 2000, 64, 1000, 800)
    world = Fair(
        policy(tenant("long", max_wait_ns=10**15), tenant("short", max_wait_ns=10**15), deployments={"m": shape})
    )
    world.send(ReplicaReady(Replica("m-0", "m", 2000, 64, 1000)))
    lengths = {"short": (10, 10), "long": (500, 100)}
    made = 0
    for _ in range(120):
        for name, (tokens_in, tokens_out) in lengths.items():
            while world.machine.state.accounts[name].waiting < 300:
                made += 1
                world.out[f"{name}:{made}"] = 1 + made % tokens_out
                world.arrive(f"{name}:{made}", name, tokens_in=tokens_in, tokens_out_max=tokens_out)
        world.until(world.now + S)
        assert abs(world.given_to("long") - world.given_to("short")) <= 2 * 2 * 1000


def contest(*names: str) -> Paced:
    return Paced(policy(*(tenant(name, 0) for name in names), milli_gpu=2000))


def flood(world: Paced, name: str, count: int) -> None:
    for n in range(count):
        world.out[f"{name}{n}"] = 10
        world.arrive(f"{name}{n}", name)


def share(world: Paced, name: str, since: int) -> int:
    """How many of a tenant's requests were dispatched from a time on."""
    return sum(at >= since and request.startswith(name) for request, at in world.began.items())


def test_who_returns_has_no_credit_for_the_time_it_was_away() -> None:
    world = contest("a", "b")
    flood(world, "a", 400)
    world.until(12 * S)  # 160 of a
    flood(world, "b", 40)
    world.until(18 * S)
    assert abs(share(world, "b", 12 * S) - share(world, "a", 12 * S)) <= 4


def test_who_was_served_alone_is_not_behind_when_all_queues_have_been_empty() -> None:
    world = contest("a", "b")
    flood(world, "a", 40)
    world.until(10 * S)
    assert world.running == []
    for n in range(20):
        for name in ("b", "a"):
            world.out[f"{name}:{n}"] = 10
            world.arrive(f"{name}:{n}", name)
    world.until(11 * S)
    assert abs(share(world, "b", 10 * S) - share(world, "a", 10 * S)) <= 1
