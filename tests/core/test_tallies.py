"""Limits of apps and keys, beside their tenant's: who waits, who is passed, what is refused, what is given back."""

from typing import Any

import pytest

from commonpool.core import views
from commonpool.core.effects import Dispatch, Start
from commonpool.core.events import JobResumed, KeyLimited, KeyRevoked, Resumed, Submitted
from commonpool.core.model import Cause, Job, Limits, Outcome, Policy, Reason, Request, Usage, Wait
from tests.core.worlds import S, World, dispatched, policy, refused, started, tenant


def rules(apps: dict[str, Limits] | None = None, **more: Any) -> Policy:
    return policy(tenant("a", 2000, apps=apps or {}, **more), milli_gpu=2000)


def limited(apps: dict[str, Limits] | None = None, keys: dict[str, Limits] | None = None, **more: Any) -> World:
    """Four slots, of which tenant a may have all."""
    world = World(rules(apps, **more))
    for key, limits in (keys or {}).items():
        world.send(KeyLimited(key, limits))
    return world


def waits_of(world: World, name: str) -> tuple[Wait, ...]:
    """What a request or job that was started has waited for."""
    started = [effect for effect in world.effects if isinstance(effect, Dispatch | Start)]
    (found,) = [e.waits for e in started if name == (e.request_id if isinstance(e, Dispatch) else e.job_id)]
    return found


# -- concurrency -------------------------------------------------------------------------------------------------------


def test_more_of_an_app_than_may_run_wait_and_are_passed_by_others() -> None:
    world = limited({"app": Limits(concurrent_requests=1)})
    assert dispatched(world.arrive("a0", "a")) == ["a0"]
    for n in range(1, 4):
        assert dispatched(world.arrive(f"a{n}", "a")) == []
    assert dispatched(world.arrive("b0", "a", app="other", tier="batch")) == ["b0"]
    assert dispatched(world.end("a0")) == ["a1"]
    assert dispatched(world.end("b0")) == []
    world.cancel("a2")
    assert dispatched(world.end("a1")) == ["a3"]


def test_a_key_is_bounded_within_its_app() -> None:
    world = limited({"app": Limits(concurrent_requests=2)}, {"k1": Limits(concurrent_requests=1)})
    world.arrive("a0", "a", key="k1")
    world.arrive("a1", "a", key="k1")  # waits for its key
    assert dispatched(world.arrive("a2", "a", key="k2")) == ["a2"]
    world.arrive("a3", "a", key="k2")  # waits for its app
    assert dispatched(world.arrive("b0", "a", app="other", key="k3")) == ["b0"]
    assert dispatched(world.end("a2")) == ["a3"]  # the key of the first in line is at its limit still
    assert dispatched(world.end("a0")) == ["a1"]


def test_one_limit_holds_over_all_models() -> None:
    two = {"m": rules().deployments["m"], "n": rules().deployments["m"]}
    world = World(
        policy(tenant("a", 4000, apps={"app": Limits(concurrent_requests=1)}), deployments=two, milli_gpu=4000),
    )
    world.ready("n-0", "n")
    world.arrive("a0", "a", model="m")
    world.arrive("a1", "a", model="n")
    world.arrive("a2", "a", model="m")
    assert dispatched(world.end("a0")) == ["a2"]  # whose turn it is at the first model
    assert dispatched(world.end("a2")) == ["a1"]


def test_what_waits_of_an_app_keeps_its_order() -> None:
    world = limited({"app": Limits(concurrent_requests=1)})
    world.arrive("a0", "a")
    world.arrive("late", "a", tier="batch")
    world.arrive("first", "a", tier="interactive")
    world.arrive("second", "a", tier="interactive")
    assert [dispatched(world.end(each)) for each in ("a0", "first", "second")] == [["first"], ["second"], ["late"]]


def test_what_waits_for_its_app_is_told_so_and_no_longer() -> None:
    world = limited({"app": Limits(concurrent_requests=1)}, {"k1": Limits(concurrent_requests=1)})
    world.arrive("a0", "a", key="k1")
    world.arrive("a1", "a", key="k1")
    for n in range(3):
        world.arrive(f"b{n}", "a", app="other")
    world.later(1)
    assert world.machine.waits_of("a1", world.now) == (Wait(Cause.CONCURRENCY, "key:k1", S),)
    world.arrive("b3", "a", app="other")  # every slot is taken now
    world.later(1).end("a0")
    assert waits_of(world, "a1") == (Wait(Cause.CONCURRENCY, "key:k1", 2 * S),)


def test_when_its_limit_is_open_again_it_waits_for_what_the_others_wait_for() -> None:
    world = limited({"app": Limits(concurrent_requests=1)})
    world.arrive("a0", "a")
    world.arrive("a1", "a", tier="batch")
    for n in range(5):  # three run, and two wait
        world.arrive(f"b{n}", "a", app="other")
    world.later(3).end("a0")
    assert dispatched(world.later(2).end("b0")) == ["b4"]
    assert dispatched(world.later(4).end("b1")) == ["a1"]
    assert waits_of(world, "a1") == (
        Wait(Cause.CONCURRENCY, "a/app", 3 * S),
        Wait(Cause.OWN_QUEUE, "", 6 * S),  # behind the interactive one, and those who run
    )


def test_a_flood_of_one_app_takes_nothing_of_the_promise_to_another() -> None:
    world = limited({"app": Limits(concurrent_requests=1)}, max_wait_ns=20 * S)
    world.arrive("first", "a")
    world.later(10).end("first", usage=Usage(10, 0, 90))  # a request takes ten seconds
    world.arrive("a0", "a")
    floods = [refused(world.arrive(f"a{n}", "a")) for n in range(1, 20)]
    turned_away = [each[0] for each in floods if each]
    assert len(turned_away) == 16  # one runs, and three wait
    assert {(each.reason, each.retry_after_ns) for each in turned_away} == {(Reason.CONCURRENCY, 10 * S)}
    assert turned_away[0].message == (
        "App app of tenant a has 3 requests waiting, and its concurrent_requests is 1, which takes 30 s; max_wait is "
        "20 s. Try again in 10 s."
    )
    for n in range(3):
        assert dispatched(world.arrive(f"b{n}", "a", app="other")) == [f"b{n}"]
    assert refused(world.arrive("b3", "a", app="other")) == []


def test_what_its_limit_keeps_asks_for_no_replica() -> None:
    world = limited({"app": Limits(concurrent_requests=1)})
    for n in range(6):
        world.arrive(f"a{n}", "a")
    (model,) = views.models(world.machine.state)
    assert model.bottleneck is views.Bottleneck.QUOTA


def test_what_ran_before_counts_even_above_the_limit() -> None:
    world = World(rules({"app": Limits(concurrent_requests=1)}))
    for n in range(2):
        request = Request(f"a{n}", "a", "app", "m", "interactive", "chat", 10, 10)
        world.send(Resumed(request, 1, 0, 0, "m-0"))
        world.attempts[request.id] = 1
    assert dispatched(world.arrive("a2", "a")) == []
    assert dispatched(world.end("a0")) == []
    assert dispatched(world.end("a1")) == ["a2"]


# -- rates, queue, sizes: those of tenant, app and key hold at once ----------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "more", "reason", "says", "retry_s"),
    [
        (Limits(requests_per_minute=2), {}, Reason.REQUESTS_PER_MINUTE, "2 requests a minute (limits.requests)", 30),
        (
            Limits(tokens_per_minute=40),
            {},
            Reason.TOKENS_PER_MINUTE,
            "40 tokens a minute (limits.tokens); this needs about 20",
            30,
        ),
        (
            Limits(bytes_per_second=1),
            {"bytes_in": 30},
            Reason.BYTES_PER_SECOND,
            "bandwidth of 1 bytes a second (limits.bandwidth)",
            30,
        ),
    ],
)
@pytest.mark.parametrize("whose", ["tenant", "app", "key"])
def test_a_refusal_says_which_limit_whose_how_much_and_how_long(
    whose: str, limits: Limits, more: dict[str, Any], reason: Reason, says: str, retry_s: int
) -> None:
    world = limited(
        {"app": limits} if whose == "app" else {},
        {"k1": limits} if whose == "key" else {},
        **({"limits": limits} if whose == "tenant" else {}),
    )
    for n in range(2):
        assert dispatched(world.arrive(f"a{n}", "a", key="k1", **more)) == [f"a{n}"]
    (refusal,) = refused(world.arrive("a2", "a", key="k1", **more))
    name = {"tenant": "Tenant a", "app": "App app of tenant a", "key": "Key k1"}[whose]
    assert (refusal.reason, refusal.retry_after_ns) == (reason, retry_s * S)
    assert refusal.message == f"{name} has used its {says}. Try again in {retry_s} s."
    assert dispatched(world.later(retry_s).arrive("a3", "a", key="k1", **more)) == ["a3"]


@pytest.mark.parametrize(
    ("limits", "more", "reason", "says"),
    [
        (Limits(queue_length=1), {}, Reason.QUEUE_FULL, "{} has 1 requests or jobs waiting; its queue_length is 1."),
        (
            Limits(tokens_in_max=50),
            {"tokens_in": 51},
            Reason.INPUT,
            "The prompt has about 51 tokens; {} may send 50 (limits.input). Shorten it.",
        ),
        (
            Limits(tokens_out_max=50),
            {"tokens_out_max": 26, "sequences": 2},
            Reason.OUTPUT,
            "The request asks for 52 tokens of output; {} may have 50 (limits.output). Set a smaller max_tokens or n.",
        ),
        (
            Limits(tokens_per_minute=50),
            {"tokens_in": 51},
            Reason.NEVER_FITS,
            "The prompt has about 51 tokens; {} may use 50 a minute (limits.tokens). Shorten it.",
        ),
    ],
)
@pytest.mark.parametrize("whose", ["app", "key"])
def test_what_is_too_much_at_once_is_refused(
    whose: str, limits: Limits, more: dict[str, Any], reason: Reason, says: str
) -> None:
    world = limited({"app": limits} if whose == "app" else {}, {"k1": limits} if whose == "key" else {})
    for n in range(5):  # four run, and one waits
        world.arrive(f"b{n}", "a", app="app" if n == 4 and whose == "app" else "other", key="k1" if n == 4 else "")
    (refusal,) = refused(world.arrive("a0", "a", key="k1", **more))
    name = {"app": "app app of tenant a", "key": "key k1"}[whose]
    assert refusal.reason is reason
    assert refusal.message.startswith(says.format(name[0].upper() + name[1:] if says.startswith("{}") else name))


def test_embeddings_have_no_output_to_bound() -> None:
    world = limited({"app": Limits(tokens_out_max=1)})
    more: dict[str, Any] = {"endpoint": "embeddings", "sequences": 4, "tokens_out_max": None}
    assert dispatched(world.arrive("a0", "a", **more)) == ["a0"]


def test_of_several_limits_the_one_that_takes_longest_tells() -> None:
    world = limited(
        {"app": Limits(requests_per_minute=1)},
        {"k1": Limits(requests_per_minute=2, tokens_per_minute=10)},
        limits=Limits(requests_per_minute=1),
    )
    world.arrive("a0", "a", key="k1", tokens_in=5, tokens_out_max=5)
    (refusal,) = refused(world.later(1).arrive("a1", "a", key="k1", tokens_in=5, tokens_out_max=5))
    assert (refusal.reason, refusal.retry_after_ns) == (Reason.REQUESTS_PER_MINUTE, 59 * S)
    assert refusal.message.startswith("Tenant a has used its 1 requests a minute")


def test_what_one_limit_refuses_takes_nothing_of_the_others() -> None:
    world = limited(
        {"app": Limits(requests_per_minute=10, tokens_per_minute=1000, bytes_per_second=100)},
        {"k1": Limits(requests_per_minute=1)},
        limits=Limits(requests_per_minute=20, tokens_per_minute=2000, bytes_per_second=200),
    )
    world.arrive("a0", "a", key="k1", bytes_in=50)
    before = left(world)
    assert len(refused(world.arrive("a1", "a", key="k1", bytes_in=50))) == 1
    assert left(world) == before


def left(world: World) -> list[tuple[int, int] | None]:
    """What is left of every rate, and when it is whole again."""
    account = world.machine.state.accounts["a"]
    tallies = [account, *account.apps.values(), *world.machine.state.keys.values()]
    rates = [rate for tally in tallies for rate in (tally.requests, tally.tokens, tally.bytes)]
    return [None if rate is None else rate.now(world.now) for rate in rates]


def test_what_waits_no_more_gives_back_to_each_what_it_took_there() -> None:
    world = limited(
        {"app": Limits(requests_per_minute=10, tokens_per_minute=30)},
        {"k1": Limits(requests_per_minute=5, tokens_per_minute=1000, bytes_per_second=10)},
        limits=Limits(tokens_per_minute=500),
    )
    whole = left(world)
    for n in range(4):
        world.arrive(f"b{n}", "a", app="other")
    used_by_others = left(world)
    world.arrive("a0", "a", key="k1", bytes_in=7)
    assert left(world) != used_by_others
    world.send(KeyRevoked("k1", "a"))  # what was taken in is refused after all: it has consumed nothing
    for n in range(4):
        world.end(f"b{n}", Outcome.FAILED, usage=Usage())
    account = world.machine.state.accounts["a"]
    tallies = [account, account.apps["app"]]
    rates = [rate for tally in tallies for rate in (tally.requests, tally.tokens, tally.bytes)]
    assert [rate and rate.now(world.now) for rate in rates] == whole[:6]


@pytest.mark.parametrize(
    ("left_of", "expected"),
    [
        ({}, ((20, 19), (2000, 1980))),
        ({"app": "app"}, ((10, 9), (2000, 1980))),
        ({"key": "k1"}, ((20, 19), (100, 80))),
        ({"app": "app", "key": "k1"}, ((10, 9), (100, 80))),
        ({"app": "other", "key": "k9"}, ((20, 19), (2000, 1980))),
    ],
)
def test_the_tightest_of_tenant_app_and_key_is_told(
    left_of: dict[str, str], expected: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    world = limited(
        {"app": Limits(requests_per_minute=10)},
        {"k1": Limits(tokens_per_minute=100)},
        limits=Limits(requests_per_minute=20, tokens_per_minute=2000),
    )
    world.arrive("a0", "a", key="k1")
    requests, tokens = views.rates(world.machine.state, "a", world.now, **left_of)
    assert requests is not None
    assert tokens is not None
    assert ((requests.limit, requests.remaining), (tokens.limit, tokens.remaining)) == expected


# -- limits change, keys end -------------------------------------------------------------------------------------------


def test_a_limit_that_comes_counts_what_runs_already() -> None:
    world = limited()
    for n in range(3):
        world.arrive(f"a{n}", "a")
    world.configure(rules({"app": Limits(concurrent_requests=2)}))
    world.arrive("a3", "a")
    assert dispatched(world.arrive("b0", "a", app="other")) == ["b0"]
    assert dispatched(world.end("a0")) == []  # two run still
    assert dispatched(world.end("a1")) == ["a3"]


def test_a_limit_that_goes_lets_what_waited_for_it_run() -> None:
    world = limited({"app": Limits(concurrent_requests=1)})
    for n in range(4):
        world.arrive(f"a{n}", "a")
    assert dispatched(world.configure(rules({"app": Limits(concurrent_requests=2)}))) == ["a1"]
    assert dispatched(world.configure(rules())) == ["a2", "a3"]


def test_what_is_used_of_a_rate_stays_used_when_the_limit_changes() -> None:
    world = limited({"app": Limits(requests_per_minute=4)})
    for n in range(3):
        world.arrive(f"a{n}", "a")
    world.configure(rules({"app": Limits(requests_per_minute=3)}))
    assert refused(world.arrive("a3", "a"))[0].retry_after_ns == 20 * S
    world.configure(rules({"app": Limits(requests_per_minute=6)}))
    assert [len(refused(world.arrive(f"a{n}", "a"))) for n in range(4, 8)] == [0, 0, 0, 1]


def test_what_waits_with_a_revoked_key_is_refused_and_what_runs_goes_on() -> None:
    world = limited(limits=Limits(requests_per_minute=100))
    for n in range(6):
        world.arrive(f"a{n}", "a", key="k1" if n % 2 else "k2")
    gone = refused(world.send(KeyRevoked("k1", "a")))
    assert [(each.request_id, each.reason) for each in gone] == [("a5", Reason.KEY_REVOKED)]
    assert (world.records[-1].status, world.records[-1].reason) == (401, "key_revoked")
    assert [each.reason for each in refused(world.arrive("a6", "a", key="k1"))] == [Reason.KEY_REVOKED]
    assert dispatched(world.end("a1")) == ["a4"]
    assert world.records[-1].outcome is Outcome.COMPLETED


def test_what_runs_with_a_revoked_key_is_not_tried_again() -> None:
    world = limited()
    world.arrive("a0", "a", key="k1")
    world.send(KeyRevoked("k1", "a"))
    effects = world.end("a0", Outcome.FAILED, retry=True)
    assert dispatched(effects) == []
    assert any(type(effect).__name__ == "Fail" for effect in effects)


def test_a_key_of_a_tenant_that_is_gone_can_be_revoked() -> None:
    world = limited()
    assert world.send(KeyRevoked("k1", "nobody")) == []
    assert world.send(KeyLimited("k2", Limits())) == []


# -- what the jobs of an app hold --------------------------------------------------------------------------------------


def job_world(**limits: int) -> World:
    """Eight GPUs and sixteen cores, all of tenant a."""
    a = tenant("a", 8000, elastic_cap=8000, apps={"app": Limits(**limits)})
    return World(policy(a, milli_gpu=8000, resources={"cpu_milli": 16_000, "memory_mib": 4096}), replicas=0)


def submit(world: World, name: str, milli_gpu: int, app: str = "app", **also: Any) -> list[str]:
    resources: Any = also
    return started(world.send(Submitted(Job(name, "a", app, "main", "batch", milli_gpu, resources))))


@pytest.mark.parametrize(
    ("limits", "resources"),
    [({"milli_gpu": 2000}, {}), ({"cpu_milli": 4000}, {"cpu_milli": 2000}), ({"memory_mib": 64}, {"memory_mib": 32})],
)
def test_the_jobs_of_an_app_hold_so_much_at_once_and_others_pass(limits: dict[str, int], resources: Any) -> None:
    world = job_world(**limits)
    assert submit(world, "j0", 1000, **resources) == ["j0"]
    assert submit(world, "j1", 1000, **resources) == ["j1"]
    assert submit(world, "j2", 1000, **resources) == []
    assert submit(world, "o0", 1000, "other", **resources) == ["o0"]
    assert world.machine.waits_of("j2", world.later(5).now) == (Wait(Cause.APP_LIMIT, "a/app", 5 * S),)
    assert started(world.finish("o0")) == []
    assert started(world.finish("j0")) == ["j2"]
    assert waits_of(world, "j2") == (Wait(Cause.APP_LIMIT, "a/app", 5 * S),)


def test_a_smaller_job_of_the_app_passes_one_that_its_limit_has_no_room_for() -> None:
    world = job_world(milli_gpu=3000)
    submit(world, "j0", 2000)
    assert submit(world, "j1", 2000) == []
    assert submit(world, "j2", 1000) == ["j2"]
    assert started(world.finish("j2")) == []
    assert started(world.finish("j0")) == ["j1"]


def test_an_overdue_job_that_its_app_keeps_back_keeps_nobody_else_back() -> None:
    world = job_world(milli_gpu=2000)
    submit(world, "j0", 2000)
    submit(world, "j1", 2000)
    world.later(1000).tick()
    for n in range(6):
        assert submit(world, f"o{n}", 1000, "other") == [f"o{n}"]
    assert started(world.finish("j0")) == ["j1"]


def test_a_job_that_its_app_may_never_run_is_refused() -> None:
    world = job_world(milli_gpu=2000, memory_mib=64)
    (refusal,) = refused(world.send(Submitted(Job("j0", "a", "app", "main", "batch", 3000, {"memory_mib": 65}))))
    assert refusal.reason is Reason.NEVER_FITS
    assert refusal.message == (
        "The job asks for 3000 milli_gpu, 65 MiB of memory; jobs of app app of tenant a may hold at most 2000 "
        "milli_gpu, 64 MiB of memory at once (limits.gpus, cpu_cores, memory). Ask for less."
    )


def test_the_queue_of_an_app_counts_its_jobs() -> None:
    world = job_world(milli_gpu=1000, queue_length=1)
    submit(world, "j0", 1000)
    submit(world, "j1", 1000)
    (refusal,) = refused(world.send(Submitted(Job("j2", "a", "app", "main", "batch", 1000))))
    assert refusal.message.startswith("App app of tenant a has 1 requests or jobs waiting; its queue_length is 1.")


def test_a_job_that_ran_before_is_counted() -> None:
    world = job_world(milli_gpu=2000)
    job = Job("j0", "a", "app", "main", "batch", 2000)
    world.send(JobResumed(job, 1, 0, 0))
    world.attempts["j0"] = 1
    assert submit(world, "j1", 1000) == []
    assert started(world.finish("j0")) == ["j1"]
