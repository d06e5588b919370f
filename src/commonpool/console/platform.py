"""For who runs the platform: who suffers, who lends to whom, what lies idle or in pieces, and what to do about it."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec
from starlette.responses import Response

from commonpool.access.permissions import Permission
from commonpool.api.wire.bill import BillLine, BillTable, LendingTable, LentLine
from commonpool.api.wire.nodes import Hints, Nodes
from commonpool.api.wire.releases import Underused
from commonpool.api.wire.status import LoanStatus, Status
from commonpool.api.wire.waits import Promises
from commonpool.console.asking import Problem
from commonpool.console.frame import Page, View, together
from commonpool.console.overview import Promised, promised
from commonpool.core.ledger import Kind
from commonpool.core.pictures import DeviceView, NodeView

SUFFERING_MAX = 12
MATRIX_MAX = 12  # parties on each side; more are summed up
NODES_MAX = 60
TENANTS_MAX = 12


class Cell(msgspec.Struct, frozen=True):
    """A device on the map: how much of it is used, in eighths, and who has it."""

    device: DeviceView
    eighths: int


class Row(msgspec.Struct, frozen=True):
    node: NodeView
    cells: Sequence[Cell]


class Matrix(msgspec.Struct, frozen=True):
    """Who lent to whom in a period: GPU seconds and money by lender and borrower, and those who lent and borrowed most.

    `rest` is how many pairs are not in it.
    """

    lenders: Sequence[str]
    borrowers: Sequence[str]
    pairs: Mapping[tuple[str, str], LentLine]
    now: Mapping[tuple[str, str], int]
    rest: int


class Use(msgspec.Struct, frozen=True):
    """How much of its guarantee a tenant used in the period, GPU seconds, and what its idle part cost."""

    tenant: str
    guaranteed: Decimal
    used: Decimal
    idle: Decimal
    idle_micro: int


def matrix(lent: Iterable[LentLine], loans: Iterable[LoanStatus]) -> Matrix:
    now = {(loan.lender, loan.borrower): loan.milli_gpu for loan in loans}
    pairs = {(line.lender, line.borrower): line for line in lent}
    weight: dict[tuple[str, str], Decimal] = {pair: line.gpu_seconds for pair, line in pairs.items()}
    for pair, milli_gpu in now.items():
        weight[pair] = weight.get(pair, Decimal(0)) + milli_gpu
    lenders, borrowers = _largest(weight, 0), _largest(weight, 1)
    rest = sum(lender not in lenders or borrower not in borrowers for lender, borrower in weight)
    return Matrix(lenders, borrowers, pairs, now, rest)


def _largest(weight: Mapping[tuple[str, str], Decimal], side: int) -> list[str]:
    sums: dict[str, Decimal] = {}
    for pair, value in weight.items():
        sums[pair[side]] = sums.get(pair[side], Decimal(0)) + value
    return sorted(sums, key=lambda name: (-sums[name], name))[:MATRIX_MAX]


def uses(lines: Iterable[BillLine]) -> list[Use]:
    """The tenants whose guarantees lay idle, the most expensive first."""
    found = []
    for line in lines:
        idle = [charge for charge in line.charges if charge.kind == Kind.IDLE.value]
        seconds = sum((charge.quantity or Decimal(0) for charge in idle), Decimal(0))
        own = line.used.gpu_seconds - line.borrowed.gpu_seconds
        found.append(
            Use(line.group[0], line.guaranteed.gpu_seconds, own, seconds, sum(charge.cost_micro for charge in idle))
        )
    return sorted(found, key=lambda use: (-use.idle_micro, -use.idle, use.tenant))


def rows(nodes: Nodes) -> list[Row]:
    """The nodes, those with most parts of devices free first: there the pieces are."""
    found = [Row(node, [Cell(device, _eighths(device)) for device in node.devices]) for node in nodes.nodes]
    return sorted(found, key=lambda row: (-_pieces(row.node), row.node.name))


def _eighths(device: DeviceView) -> int:
    if device.milli_gpu <= 0:
        return 0
    used = min(device.milli_gpu, max(0, device.milli_gpu - device.free_milli_gpu))
    return -(-8 * used // device.milli_gpu)


def _pieces(node: NodeView) -> int:
    return sum(device.free_milli_gpu for device in node.devices if 0 < device.free_milli_gpu < device.milli_gpu)


async def show(view: View) -> Response:
    status = await view.get("/admin/v1/status", Status)
    promises, nodes, hints, underused, bill, lending = await together(
        view.wish(Permission.READ_USAGE, "/admin/v1/promises", Promises),
        view.wish(Permission.READ_NODES, "/admin/v1/nodes", Nodes),
        view.slow(Permission.READ_NODES, "/admin/v1/hints", Hints),
        view.slow(Permission.READ_STATUS, "/admin/v1/underuse", Underused),
        view.slow(Permission.READ_BILLS, "/admin/v1/bill", BillTable, by="tenant"),
        view.slow(Permission.READ_BILLS, "/admin/v1/bill/matrix", LendingTable),
    )
    used = [] if isinstance(bill, Problem) else uses(bill.lines)
    return view.render(
        "platform.html",
        status=status,
        promises=promises if isinstance(promises, Problem) else suffering(promised(promises.promises), status),
        nodes=nodes,
        rows=[] if isinstance(nodes, Problem) else rows(nodes)[:NODES_MAX],
        hints=hints,
        underused=underused,
        bill=bill,
        uses=used[:TENANTS_MAX],
        idle_micro=sum(use.idle_micro for use in used),
        idle_seconds=sum((use.idle for use in used), Decimal(0)),
        tenants=len(used),
        matrix=lending if isinstance(lending, Problem) else matrix(lending.pairs, status.loans),
        period="" if isinstance(lending, Problem) else lending.period,
        suffering_max=SUFFERING_MAX,
    )


def suffering(promises: Iterable[Promised], status: Status) -> list[Promised]:
    """Tenants and tiers by the wait that one in a hundred exceeds; of those alike the smallest tenant first.

    Each is itself: a mean over tenants would hide a small one.
    """
    size = {tenant.name: tenant.guaranteed_milli_gpu for tenant in status.tenants}
    return sorted(
        promises,
        key=lambda each: (-(each.queue.spread.p99_ns or 0), size.get(each.tenant, 0), each.tenant, each.tier),
    )


PAGES = (
    Page(
        "/platform",
        "platform",
        show,
        needs=(Permission.READ_STATUS,),
        group="now",
        key="p",
        platform=True,
        shared=True,
    ),
)
