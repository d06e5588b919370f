"""Given nodes, when the map is opened, then each card is as it is, and it is said where work would go."""

import msgspec
import pytest

from commonpool.access.callers import by_admin_key
from commonpool.config import parse_sources
from commonpool.console import devices
from commonpool.core.events import DeviceLoad, HostLoad, NodeSeen
from commonpool.core.machine import Machine
from commonpool.core.model import Device, Node
from commonpool.core.pictures import DeviceView, HolderView, NodeView
from tests.api.fakes import ADMIN, CONFIG, NOW, FakeOperations, sources
from tests.console.visitor import OWN_PAGE, visiting, words


def device(name: str, free: int = 1000, *, whole: int = 1000, island: str = "", healthy: bool = True) -> DeviceView:
    holders = (HolderView("r", "chat", "", whole - free, 0),) if free < whole else ()
    return DeviceView(name, "A100", "", island, healthy, whole, free, 81920, 40960, holders)


def node(*its: DeviceView) -> NodeView:
    return NodeView("n1", "main", "node", (), "", 0, 0, None, None, its)


@pytest.fixture
def product() -> FakeOperations:
    made = FakeOperations()
    made.machine = Machine(parse_sources(sources(CONFIG.replace("gpus: 4_gpu", "gpus: 6_gpu"))).policy)
    cards = tuple(Device(f"n1/{n}", island=f"n1-{n // 2}", healthy=n != 3) for n in range(4))
    made.machine.handle(NodeSeen(Node("n1", "main", cards)), NOW)
    made.machine.handle(NodeSeen(Node("n2", "main", tuple(Device(f"n2/{n}") for n in range(2)))), NOW)
    return made


def test_what_a_card_is() -> None:
    assert devices.state(device("a")) == "free"
    assert devices.state(device("a", 400)) == "part"
    assert devices.state(device("a", 0)) == "full"
    assert devices.state(device("a", 0, healthy=False)) == "lost"


def test_cards_of_an_island_are_side_by_side_and_apart_from_others() -> None:
    row = devices.row(
        node(device("0", island="x"), device("1", island="y"), device("2", island="x"), device("3", island="y"))
    )
    assert [cell.device.id for cell in row.cells] == ["0", "2", "1", "3"]
    assert [island.name for island in row.islands] == ["x", "y"]
    first, second = row.islands
    assert first.x + first.width + devices.GAP + devices.APART == second.x
    assert row.width == second.x + second.width


def test_a_slice_is_narrower_and_pieces_fill_a_card_from_below() -> None:
    row = devices.row(node(device("whole", 750), device("slice", whole=430, free=430)))
    whole, cut = row.cells
    assert cut.width < whole.width
    (piece,) = whole.pieces
    assert (piece.y + piece.height, piece.height) == (devices.HEIGHT, devices.HEIGHT / 4)
    assert row.free_milli_gpu == 1180


def test_more_held_than_there_is_stays_within_the_card() -> None:
    holders = (HolderView("r", "chat", "", 900, 0), HolderView("j", "", "support", 900, 0))
    over = msgspec.structs.replace(device("a"), holders=holders, free_milli_gpu=-800)
    pieces = devices.row(node(over)).cells[0].pieces
    assert [piece.kind for piece in pieces] == ["replica", "job"]
    assert sum(piece.height for piece in pieces) == devices.HEIGHT
    assert min(piece.y for piece in pieces) == 0


def test_the_map_has_every_node_and_its_filter(product: FakeOperations) -> None:
    with visiting(product) as local:
        page = local.get("/devices").text
        assert page.count("<li id=") == 2
        assert page.count('<g class="free">') == 5
        assert page.count('<g class="lost">') == 1
        assert page.count('class="island"') == 2
        lost = local.get("/devices?only=lost").text
        assert 'id="n1"' in lost
        assert 'id="n2"' not in lost
        assert "No node is like that." in words(local.get("/devices?only=pieces").text)


def test_without_nodes_it_says_so() -> None:
    with visiting(FakeOperations()) as local:
        assert "The nodes of no pool are known; its GPUs are only counted." in words(local.get("/devices").text)


def test_where_a_job_would_go(product: FakeOperations) -> None:
    with visiting(product) as local:
        answer = local.post("/devices/place", data={"tenant": "support", "gpus": "1"}, headers=OWN_PAGE)
        shown = words(answer.text)
        for word in ("It would start now", "yes", "n1", "It is within the guarantee of tenant support."):
            assert word in shown, word
        assert product.machine.state.inventories["main"].free == 5000
        never = local.post("/devices/place", data={"tenant": "support", "gpus": "1.5"}, headers=OWN_PAGE)
        assert any("1.5 GPUs are more than one and not whole" in piece for piece in words(never.text))
        replica = local.post("/devices/place", data={"what": "model", "model": "echo"}, headers=OWN_PAGE)
        assert any("engines that others have started" in piece for piece in words(replica.text))


def test_a_question_that_cannot_be_asked_is_answered_beside_it(product: FakeOperations) -> None:
    with visiting(product) as local:
        answer = local.post("/devices/place", data={"tenant": "support", "memory": "much"}, headers=OWN_PAGE)
        assert answer.status_code == 400
        assert 'value="much"' in answer.text
        assert local.post("/devices/place", data={"tenant": "support", "gpus": "1"}).status_code == 403


def test_devices_are_the_operators_own(product: FakeOperations) -> None:
    product.callers[ADMIN] = by_admin_key("k", "tenant-admin", "support")
    with visiting(product, authorization=ADMIN.decode()) as local:
        for path in ("/devices", "/devices/place"):
            answer = local.get(path)
            assert answer.status_code == 403
            assert "n1" not in words(answer.text)


def test_what_the_hardware_says_and_what_it_does_not(product: FakeOperations) -> None:
    loads = DeviceLoad("0", 830, 40960), DeviceLoad("1", None, 512)
    product.machine.handle(HostLoad("n1", 100, 100, devices=loads), NOW)
    with visiting(product) as local:
        shown = words(local.get("/devices").text)
    assert [shown.count(word) for word in ("83 %", "40,960 MiB", "512 MiB", "0 MiB", "0 %")] == [1, 1, 1, 0, 0]
    assert shown.count("unknown") == 2 * 6 - 3
