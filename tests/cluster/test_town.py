"""The product on a real Ray cluster: three nodes with four GPUs each that are only counted, on this machine."""

import itertools
import time
from collections import Counter

import pytest

pytest.importorskip("ray")

from tests.acceptance.product import alive
from tests.cluster.town import Load, Town

pytestmark = [
    pytest.mark.usefixtures("town"),
    # Ray closes few of its files and pipes, and speaks of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


SLOTS = 2


def placed(town: Town) -> dict[str, str]:
    """Where the core has put each replica that it has decided on."""
    decisions = town.get("/admin/v1/decisions?kind=placement")["decisions"]
    return {each["subject"]: each["node"] for each in decisions}


def test_replicas_are_where_the_core_has_placed_them(town: Town) -> None:
    replicas = town.replicas()
    taken = [device for each in replicas.values() for device in each["devices"]]
    assert len(taken) == len(set(taken)) == 2 * len(replicas)
    for each in replicas.values():
        assert each["address"].startswith(f"http://{each['node']}:")
        assert all(device.startswith(f"{each['node']}/") for device in each["devices"])
        log = town.folder / "var" / "engines" / f"{each['id'].rpartition('.')[0]}.log"
        visible = ",".join(device.rpartition("/")[2] for device in each["devices"])
        town.until(lambda: f"devices {visible}" in log.read_text().splitlines())  # noqa: B023


def test_every_node_has_a_gateway_and_each_reaches_every_replica(town: Town) -> None:
    def full() -> bool:
        return {each["running"] for each in town.replicas().values()} == {SLOTS}

    answers = town.ask_until(full, *((host, "support") for host in town.hosts * 3))
    assert {each.status for each in answers} == {200}
    assert {each.where for each in answers} == {each["node"] for each in town.replicas().values()}
    town.until(town.settled)


def test_gateways_on_all_nodes_enforce_one_limit_of_requests_at_once(town: Town) -> None:
    most: list[int] = []

    def all_there() -> bool:
        tenant = next(each for each in town.status()["tenants"] if each["name"] == "single")
        most.append(tenant["running"])
        return bool(tenant["running"] and tenant["running"] + tenant["waiting"] == 2 * len(town.hosts))

    answers = town.ask_until(all_there, *((host, "single") for host in town.hosts * 2))
    assert {each.status for each in answers} == {200}
    assert max(most) == 1
    town.until(town.settled)
    spans = sorted(
        (each["arrived_ns"] + each["wait_ns"], each["arrived_ns"] + each["total_ns"])
        for each in town.records()
        if each["tenant"] == "single"
    )
    assert len(spans) == 2 * len(town.hosts)
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))


def test_gateways_on_all_nodes_enforce_one_limit_of_requests_a_minute(town: Town) -> None:
    begun = time.monotonic()
    answers = town.ask_all(*((host, "now", "hurried") for host in town.hosts * 6))
    came_free = int((time.monotonic() - begun) / 12)  # one of five a minute
    taken = Counter(each.status for each in answers)
    assert taken.keys() == {200, 429}
    assert 5 <= taken[200] <= 5 + came_free
    left = [int(each.headers["x-ratelimit-remaining-requests"]) for each in answers]
    assert min(left) == 0


def test_a_revoked_key_is_refused_at_every_gateway(town: Town) -> None:
    made = town.post("/admin/v1/keys", {"tenant": "support", "app": "default"})
    town.keys["leaver"] = made["key"]
    town.until(lambda: {a.status for a in town.ask_all(*((host, "now", "leaver") for host in town.hosts))} == {200})
    town.post(f"/admin/v1/keys/{made['about']['id']}/revoke", {})
    town.until(lambda: {a.status for a in town.ask_all(*((host, "now", "leaver") for host in town.hosts))} == {401})


def test_a_core_that_is_killed_under_load_loses_no_request_and_restarts_no_replica(town: Town) -> None:
    town.until(town.settled)
    replicas = {name: each["pid"] for name, each in town.replicas().items()}
    earlier = {each["request_id"] for each in town.records()}
    pid = town.core_pid()

    with Load(town) as load:
        load.some(5)
        town.kill_core()
        load.some(10)
    answers = load.at(*town.hosts)
    assert Counter(each.status for each in answers) == {200: len(answers)}
    town.until(lambda: town.settled() and town.core_pid() != pid)
    town.until(lambda: {name: each["pid"] for name, each in town.replicas().items()} == replicas)
    records = [each for each in town.records() if each["request_id"] not in earlier]
    assert Counter(each["request_id"] for each in records if each["outcome"] == "completed") == {
        each.request_id: 1 for each in answers
    }


def test_a_job_runs_on_its_devices_and_outlives_the_core(town: Town) -> None:
    flag = town.folder / "go-on"
    script = "echo on $COMMONPOOL_DEVICES sees $CUDA_VISIBLE_DEVICES; "
    script += f"while [ ! -e {flag} ]; do sleep 0.1; done; echo over"
    wanted = {"command": ["sh", "-c", script], "cwd": str(town.folder), "hardware": {"milli_gpu": 2000}}
    job = town.post("/admin/v1/jobs", {**wanted, "tenant": "research"})["id"]
    town.until(lambda: "over" in town.job(job)["log"] or "sees" in town.job(job)["log"])
    (attempt,) = town.job(job)["attempts"]
    visible = ",".join(device.rpartition("/")[2] for device in attempt["devices"])
    assert town.job(job)["log"] == f"on {','.join(attempt['devices'])} sees {visible}\n"
    taken = {device for each in town.replicas().values() for device in each["devices"]}
    assert len(set(attempt["devices"]) - taken) == 2
    pid = town.core_pid()
    town.kill_core()
    town.until(lambda: town.core_pid() != pid and town.in_use() == 2000)
    flag.touch()
    town.until(lambda: town.job(job)["state"] == "done" and town.settled())
    assert town.job(job)["log"].endswith("over\n")
    assert [each["outcome"] for each in town.records() if each["request_id"] == job] == ["completed"]


def test_a_gateway_whose_process_dies_leaves_nothing_taken_and_comes_back(town: Town) -> None:
    host = town.hosts[1]

    def killed() -> bool:
        if town.open_requests() < 12:
            return False
        town.kill_gateway(host)
        return True

    answers = town.ask_until(killed, *([(host, "support")] * 12))
    assert {each.status for each in answers} == {0}
    town.until(town.settled)
    town.until(lambda: {each.status for each in town.ask_all((host, "now", "support"))} == {200})


def test_a_gateway_that_talks_with_the_core_no_more_is_replaced(town: Town) -> None:
    host = town.hosts[1]
    session = town.gateway_session(host)
    town.gateway(host).__ray_call__.remote(lambda gateway: gateway._talking.cancel())
    town.until(lambda: town.gateway_session(host) not in ("", session))
    town.until(lambda: {each.status for each in town.ask_all((host, "now", "support"))} == {200})
    town.until(town.settled)


def test_a_node_that_is_killed_under_load_costs_only_what_its_own_clients_see(town: Town) -> None:
    town.until(town.settled)
    dying = next(host for host in town.hosts[1:] if any(each["node"] == host for each in town.replicas().values()))
    kept = [host for host in town.hosts if host != dying]
    before = placed(town)

    with Load(town) as load:
        load.some(5)
        town.kill_node(dying)
        load.some(10)
    assert Counter(each.status for each in load.at(*kept)) == {200: len(load.at(*kept))}
    # That the node is lost is noticed later than its work is done elsewhere.
    town.until(lambda: {each["node"] for each in town.replicas().values()} <= set(kept))
    town.until(lambda: town.settled() and town.ready_replicas() == 4)
    moved = {node for replica, node in placed(town).items() if replica not in before}
    assert moved
    assert moved <= set(kept)


def test_a_node_that_is_added_under_load_is_used(town: Town) -> None:
    with Load(town) as load:
        town.add_node("127.0.0.5")
        load.some(5)
    assert {each.status for each in load.at(*load.answers)} == {200}
    town.until(lambda: {each.status for each in town.ask_all(("127.0.0.5", "now", "support"))} == {200})
    town.until(lambda: town.status()["pools"][0]["capacity_milli_gpu"] == 4000 * len(town.hosts))
    town.until(town.settled)


def test_a_job_of_a_node_that_is_cut_off_runs_again_elsewhere_and_once_when_the_node_is_back(town: Town) -> None:
    cut = "127.0.0.5"  # the only one with room
    ran, go_on = town.folder / "ran", town.folder / "go-on-again"
    script = f"echo $$ >> {ran}; while [ ! -e {go_on} ]; do sleep 0.1; done"
    wanted = {"command": ["sh", "-c", script], "cwd": str(town.folder), "hardware": {"milli_gpu": 2000}, "retries": 1}
    job = town.post("/admin/v1/jobs", {**wanted, "tenant": "research"})["id"]
    town.until(ran.exists)
    (attempt,) = town.job(job)["attempts"]
    assert attempt["node"] == cut
    town.add_node("127.0.0.6")  # all nodes are one machine: what joins after the cut would end what runs there
    town.until(lambda: town.status()["pools"][0]["capacity_milli_gpu"] == 4000 * len(town.hosts))
    town.kill_node(cut)  # all but the job's own processes, which is what a cut looks like from the core
    town.until(lambda: len(ran.read_text().split()) == 2)
    first, second = map(int, ran.read_text().split())
    assert [each["node"] for each in town.job(job)["attempts"]] == [cut, "127.0.0.6"]
    assert alive(first)
    town.add_node(cut)
    town.until(lambda: not alive(first))
    assert alive(second)
    go_on.touch()
    town.until(lambda: town.job(job)["state"] == "done" and town.settled())
    assert len(ran.read_text().split()) == 2
    records = sorted((each["attempt"], each["outcome"]) for each in town.records() if each["request_id"] == job)
    assert records == [(1, "failed"), (2, "completed")]


def test_the_next_run_takes_over_what_an_earlier_one_has_left(town: Town) -> None:
    town.until(lambda: town.ready_replicas() == 4)
    replicas = {name: each["pid"] for name, each in town.replicas().items()}
    town.begin()
    assert {name: each["pid"] for name, each in town.replicas().items()} == replicas
    answers = town.ask_all(*((host, "now", "support") for host in town.hosts))
    assert {each.status for each in answers} == {200}
