"""Laws of time: every request and every job is served, or refused, within its bound."""

from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.effects import Dispatch
from tests.core.worlds import Paced, S, policy, refused, tenant

seeds = st.integers(0, 1 << 32)
few = settings(max_examples=16, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@few
@given(seed=seeds)
def test_what_was_taken_starts_within_max_wait_and_the_longest_that_runs(seed: int) -> None:
    """Law: where what is expected is right, who is taken within its guarantee starts by max_wait, and by what runs.

    Every tenant has a guarantee of some slots and requests of one length of its own; all together they ask for several
    times what there is, in two classes, and some of them leave again.
    """
    random = Random(seed)
    slots = {"a": random.randint(1, 4), "b": random.randint(1, 4)}
    slots["c"] = 12 - sum(slots.values())
    max_wait = {name: random.choice([5, 20, 60]) * S for name in slots}
    out = {name: random.choice([5, 40, 120]) for name in slots}
    tenants = [tenant(n, 500 * slots[n], max_wait_ns=max_wait[n], elastic_cap=6000) for n in slots]
    world = Paced(policy(*tenants, milli_gpu=6000), replicas=3)
    for name in slots:  # what they are is learned
        world.out[f"{name}:first"] = out[name]
        world.arrive(f"{name}:first", name, tokens_out_max=out[name])
        world.until(world.now + 10 * S)
    longest = max(world.length(f"{name}:first") for name in slots)
    arrived, refusals = {}, []
    for n in range(1000):
        world.until(world.now + random.choice([0, 0, 1, 1, 2]) * S // 20)
        name = random.choice("aabbcccc")
        request = f"{name}:{n}"
        world.out[request], arrived[request] = out[name], world.now
        effects = world.arrive(request, name, random.choice(["interactive", "batch"]), tokens_out_max=out[name])
        refusals += [effect.request_id for effect in refused(effects)]
        if not random.randrange(9):
            world.cancel(random.choice(list(arrived)))
    world.until(world.now + 200 * S)
    assert [effect.request_id for effect in refused(world.effects)] == refusals  # at once, or not at all
    assert not set(refusals) & set(world.began)
    for effect in world.effects:
        if isinstance(effect, Dispatch):
            assert effect.wait_ns <= max_wait[effect.request_id[0]] + longest, effect
    assert {record.request_id for record in world.records} == {*arrived, *(f"{name}:first" for name in slots)}


@few
@given(seed=seeds)
def test_a_job_within_its_guarantee_starts_once_its_turn_and_what_ran_before_have_passed(seed: int) -> None:
    """Law: with k jobs within its guarantee at once and none longer than L, the n-th in line starts within (1 + n/k)·L.

    What was borrowed is back after L at the latest, since until then nothing more is lent; from then on k of them run,
    and every L at the latest k more do. Tenants have jobs of one size each; "greedy" has no guarantee, "torn" asks for
    more at once than it is guaranteed.
    """
    random = Random(seed)
    longest = 100 * S
    size = {"a": random.choice([500, 1000, 2000]), "b": random.choice([500, 1500]), "greedy": 500, "torn": 3000}
    guaranteed = {"a": 4000, "b": 3000, "greedy": 0, "torn": 1000}
    tenants = [tenant(n, guaranteed[n], elastic_cap=8000, max_wait_ns=random.choice([10, 1000]) * S) for n in size]
    world = Paced(policy(*tenants, milli_gpu=8000), replicas=0)
    line: dict[str, int] = {}
    arrived: dict[str, int] = {}
    for n in range(150):
        world.until(world.now + random.choice([0, 1, 10]) * S)
        name = random.choice(["a", "b", "greedy", "torn"])
        job = f"{name}:{n}"
        line[job] = world.machine.state.accounts[name].waiting
        arrived[job], world.lasts[job] = world.now, random.randint(1, 100) * S
        world.submit(job, name, size[name])
    world.until(world.now + 150 * longest)
    for job, at in arrived.items():
        assert job in world.began  # law: when nothing more comes, everything is served
        name = job.partition(":")[0]
        if name in "ab":
            at_once = guaranteed[name] // size[name]
            assert world.began[job] - at <= longest + line[job] * longest // at_once, job


@few
@given(seed=seeds)
def test_small_jobs_do_not_keep_a_large_one_waiting_for_ever(seed: int) -> None:
    """Law: an overdue job that borrows starts once a fifth of the surplus has paid for what stands idle meanwhile.

    That is at most all devices (6 GPUs) until the longest has ended (L = 100 s): 600 GPU seconds, where the first price
    is 5 GPUs for max_wait (60 s). Doubled until it is enough, the prices paid sum to less than four times that, and the
    last may be twice it. Jobs use at least 4 GPUs of the surplus here, so a fifth of it pays in (4 + 2) × 600 / 0.8 s.
    """
    random = Random(seed)
    guaranteed = {name: random.choice([0, 500]) for name in ("a", "b", "large")}
    tenants = [tenant(n, guaranteed[n], elastic_cap=8000, max_wait_ns=60 * S) for n in guaranteed]
    world = Paced(policy(*tenants, milli_gpu=8000), replicas=1)
    submitted = 0
    for n in range(600):
        world.until(world.now + 10 * S)
        name = random.choice("ab")
        world.lasts[f"{name}:{n}"] = random.randint(60, 100) * S
        world.submit(f"{name}:{n}", name, guaranteed[name] or random.choice([500, 1000, 1500]))
        world.out[f"r{n}"] = 40
        world.arrive(f"r{n}", name, tokens_out_max=40)
        if n == 50:
            submitted = world.now
            world.lasts["large"] = 100 * S
            world.submit("large", "large", 5000)
        if "large" in world.began:
            break
    assert world.began["large"] - submitted <= 4500 * S
