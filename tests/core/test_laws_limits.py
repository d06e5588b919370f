"""The law of limits: what is taken of each is what was used, whatever happens, and it is given back exactly once.

While no time passes nothing refills, so what is left of a rate tells what was taken of it. That is compared with what a
reader of events and effects would expect: a request that was served counts, with its tokens; one that was cancelled
while it waited counts, without tokens; one that was refused counts nothing, also where it had been taken in before.
One that is answered with what is kept counts at once.
"""

from collections import Counter
from random import Random

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.effects import Effect, Fail, Refuse
from commonpool.core.events import KeyLimited, KeyRevoked, Recalled
from commonpool.core.limits import Rate, Tally
from commonpool.core.model import NO_LIMITS, Limits, Outcome, Policy, Request, Usage
from tests.core.worlds import World, dispatched, policy, refused, tenant

APPS = ("app", "other")
KEYS = ("k1", "k2", "k3")
RATES = {"requests": "requests_per_minute", "tokens": "tokens_per_minute", "bytes": "bytes_per_second"}
SECONDS = 60

Place = tuple[str, str, int]  # whose limit, of what, and how often that has been without a limit before


def limits(random: Random) -> Limits:
    """Some, or none: narrow ones, of which much is used, and wide ones."""
    return Limits(
        concurrent_requests=random.choice([None, None, 1, 2]),
        requests_per_minute=random.choice([None, 5, 20, 500]),
        tokens_per_minute=random.choice([None, 60, 400, 50_000]),
        bytes_per_second=random.choice([None, 1, 20, 5_000]),
        tokens_in_max=random.choice([None, None, 15]),
        tokens_out_max=random.choice([None, None, 15]),
    )


class Books:
    """A world in which limits come, change and go, and what is expected to be taken of each."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.by_name: dict[str, Limits] = {}
        self.lives: Counter[tuple[str, str]] = Counter()
        self.used: Counter[Place] = Counter()
        self.taken: dict[str, list[Place]] = {}  # by request that is open, what it took of
        self.requests: dict[str, Request] = {}
        self.revoked: set[str] = set()
        self.names = 0
        self.world = World(self.rules(), replicas=2)

    def rules(self) -> Policy:
        """Other limits of the tenant and of its apps."""
        random = self.random
        self.limit("a", msgspec.structs.replace(limits(random), queue_length=random.choice([3, 1000])))
        for app in APPS:
            self.limit(app, limits(random) if random.random() < 0.6 else NO_LIMITS)
        apps = {app: self.by_name[app] for app in APPS if self.by_name[app] != NO_LIMITS}
        one = tenant(
            "a", 1000, limits=self.by_name["a"], apps=apps, priority=random.choice([{"t": 9}, {"t": 1, "u": 2}])
        )
        return policy(one, milli_gpu=2000)

    def limit(self, name: str, limits: Limits) -> None:
        self.by_name[name] = limits
        for kind, field in RATES.items():
            if getattr(limits, field) is None:
                self.lives[name, kind] += 1

    def places(self, request: Request) -> list[Place]:
        """The rates that bound it now."""
        names = [name for name in ("a", request.app, request.key) if name in self.by_name]
        return [
            (name, kind, self.lives[name, kind])
            for name in names
            for kind, field in RATES.items()
            if getattr(self.by_name[name], field) is not None
        ]

    # -- what happens --------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        self.names += 1
        random = self.random
        name, key = f"r{self.names}", random.choice(["", *KEYS])
        tokens, size = random.choice([1, 5, 30]), random.choice([0, 7, 90])
        request = Request(name, "a", random.choice(APPS), "m", "t", "chat", tokens, 10, bytes_in=size, key=key)
        before = self.left()
        effects = self.world.arrive(
            name, "a", "t", app=request.app, key=key, tokens_in=tokens, tokens_out_max=10, bytes_in=size
        )
        if any(isinstance(effect, Refuse) and effect.request_id == name for effect in effects):
            assert self.left() == before  # what is refused consumes nothing
            return
        self.requests[name] = request
        self.taken[name] = self.places(request)
        for place in self.taken[name]:
            assert place[1] == "bytes" or self.rate(place).now(0)[0] >= 0  # no limit is exceeded
            self.used[place] += {"requests": 1, "bytes": size, "tokens": 0}[place[1]]  # tokens are told at its end
        self.heard(effects)

    def recall(self) -> None:
        self.names += 1
        random = self.random
        tokens, tokens_out = random.choice([1, 5, 30]), random.choice([0, 3])
        size, sent = random.choice([0, 7, 90]), random.choice([0, 50])
        app, key = random.choice(APPS), random.choice(["", *KEYS])
        request = Request(f"r{self.names}", "a", app, "m", "t", "chat", tokens, 10, bytes_in=size, key=key)
        before = self.left()
        effects = self.world.send(Recalled(request, Usage(tokens, tokens, tokens_out), sent))
        if refused(effects):
            assert self.left() == before
            return
        for place in self.places(request):
            assert place[1] == "bytes" or self.rate(place).now(0)[0] >= 0
            self.used[place] += {"requests": 1, "bytes": size + sent, "tokens": tokens + tokens_out}[place[1]]

    def end(self) -> None:
        if not self.world.running:
            return
        random = self.random
        name = random.choice(self.world.running)
        request, outcome = self.requests[name], random.choice(list(Outcome)[:3])
        retry = outcome is not Outcome.COMPLETED and random.random() < 0.5
        tokens_out, sent = random.choice([0, 3, 10]), random.choice([0, 50])
        for place in self.places(request):
            if place[1] == "bytes":
                self.used[place] += sent
        tokens = 0 if outcome is Outcome.FAILED else request.tokens_in + tokens_out
        usage = Usage(request.tokens_in, 0, tokens_out)
        effects = self.world.end(name, outcome, usage=usage, retry=retry, bytes_out=sent)
        gone = not retry or any(isinstance(effect, Fail) and effect.request_id == name for effect in effects)
        if gone:
            self.over(name, tokens)
        self.heard(effects)

    def cancel(self) -> None:
        waiting = [name for name in self.taken if name not in self.world.running]
        if waiting:
            name = self.random.choice(waiting)
            effects = self.world.cancel(name)
            self.over(name, 0)
            self.heard(effects)

    def limit_a_key(self) -> None:
        """Before anything comes with it, as a key's limits are known."""
        key = self.random.choice(KEYS)
        if key not in self.revoked and all(self.requests[name].key != key for name in self.taken):
            self.limit(key, limits(self.random))
            self.heard(self.world.send(KeyLimited(key, self.by_name[key])))

    def revoke_a_key(self) -> None:
        if self.random.random() < 0.2:
            key = self.random.choice(KEYS)
            self.revoked.add(key)
            self.by_name.pop(key, None)
            self.heard(self.world.send(KeyRevoked(key, "a")))

    def reconfigure(self) -> None:
        self.heard(self.world.configure(self.rules()))

    def tick(self) -> None:
        """A replica where an attempt failed is asked again."""
        self.heard(self.world.tick())

    def heard(self, effects: list[Effect]) -> None:
        """What was taken in and is refused after all has consumed nothing."""
        for effect in effects:
            if isinstance(effect, Refuse) and effect.request_id in self.taken:
                request = self.requests[effect.request_id]
                for place in self.taken.pop(effect.request_id):
                    self.used[place] -= {"requests": 1, "bytes": request.bytes_in, "tokens": 0}[place[1]]

    def over(self, name: str, tokens: int) -> None:
        for place in self.taken.pop(name):
            if place[1] == "tokens":
                self.used[place] += tokens

    # -- what is left --------------------------------------------------------------------------------------------------

    def tally(self, name: str) -> Tally:
        state = self.world.machine.state
        account = state.accounts["a"]
        return account if name == "a" else account.apps[name] if name in APPS else state.keys[name]

    def rate(self, place: Place) -> Rate:
        rate = getattr(self.tally(place[0]), place[1])
        assert isinstance(rate, Rate)
        return rate

    def left(self) -> dict[Place, int]:
        return {
            (name, kind, self.lives[name, kind]): self.rate((name, kind, 0)).now(0)[0]
            for name, limits in self.by_name.items()
            for kind, field in RATES.items()
            if getattr(limits, field) is not None
        }

    def check(self) -> None:
        """When nothing is open, of every rate so much is left as was not used."""
        assert not self.taken
        for place, left in self.left().items():
            name, kind, _ = place
            whole = getattr(self.by_name[name], RATES[kind]) * (SECONDS if kind == "bytes" else 1)
            assert left == whole - self.used[place], place


@settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_what_is_taken_of_every_limit_is_what_was_used(seed: int) -> None:
    random = Random(seed)
    books = Books(random)
    often = [books.arrive, books.arrive, books.arrive, books.end, books.end, books.cancel, books.recall]
    seldom = [books.limit_a_key, books.limit_a_key, books.revoke_a_key, books.reconfigure, books.tick]
    for _ in range(150):
        random.choice([*often, *often, *seldom])()
    while books.taken:  # all that is open ends
        books.tick()
        (books.end if books.world.running else books.cancel)()
    books.check()
    assert dispatched(books.world.tick()) == []
