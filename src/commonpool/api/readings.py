"""Readings: what is metered elsewhere, such as storage, told from time to time by whoever measures it."""

from calendar import timegm
from typing import Annotated, Final

import msgspec

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.subjects import TENANT_OF_BODY, Who
from commonpool.api.wire.units import Ns
from commonpool.config import Config
from commonpool.config.billing_keys import FEES
from commonpool.config.calendar import DATE_FIRST
from commonpool.config.keys import DEFAULT_APP
from commonpool.config.problems import hint, listed
from commonpool.core.ledger import METERS
from commonpool.core.model import NS_PER_S
from commonpool.store.ledger import Reading

FIRST_NS: Final = timegm(DATE_FIRST.timetuple()) * NS_PER_S  # before it there are no days to bill


class NewReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quantity that a tenant took from `start_ns` until `end_ns`, evenly, in the meter's smallest unit: bytes of
    `network_gb`, MiB × seconds of `storage_gib_hour`. The answer says how many make one unit that has a price.

    `id` is the source's own: the same one may be sent again, with the same content. `pool` "" is none.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,200}$")]
    meter: str
    tenant: str
    quantity: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    start_ns: Ns
    end_ns: Ns
    app: str = DEFAULT_APP
    pool: str = ""


class TakenReading(msgspec.Struct, frozen=True):
    """What was taken down. `unit` is how many of `quantity` make one unit that has the meter's price."""

    reading: Reading
    unit: int


async def create(operations: Operations, _: Nothing, new: NewReading, __: Who) -> tuple[TakenReading, bool]:
    config = operations.config()
    _check_names(config, new)
    if new.start_ns < FIRST_NS:
        raise BadRequestError(
            f"a reading is from {DATE_FIRST} on, and start_ns {new.start_ns} is before it; give nanoseconds since 1970,"
            " not seconds or milliseconds",
            param="start_ns",
        )
    if new.end_ns <= new.start_ns:
        raise BadRequestError("a reading ends after it begins; give a later end_ns", param="end_ns")
    if new.end_ns > operations.now_ns():
        raise BadRequestError("a reading is about what has been; its end_ns is in the future", param="end_ns")
    reading = Reading(
        id=new.id,
        meter=new.meter,
        tenant=new.tenant,
        quantity=new.quantity,
        start_ns=new.start_ns,
        end_ns=new.end_ns,
        app=new.app,
        cost_center=config.apps[new.tenant][new.app].cost_center,
        pool=new.pool,
    )
    return TakenReading(reading, METERS[new.meter]), await operations.bills().read(reading)


def _check_names(config: Config, new: NewReading) -> None:
    if new.meter not in FEES:
        raise BadRequestError(f"there is no meter {new.meter!r}; {hint(new.meter, FEES, 'there are')}", param="meter")
    if new.meter not in config.billing.meters:
        raise BadRequestError(
            f"{new.meter} has no price, so nobody would pay for it; write one under prices.meters, 0 where it is free",
            param="meter",
        )
    apps = config.apps[new.tenant]
    if new.app not in apps:
        raise BadRequestError(f"tenant {new.tenant} has no app {new.app!r}; it has {listed(apps)}", param="app")
    if new.pool and new.pool not in config.policy.pools:
        message = f"there is no pool {new.pool!r}; there is {listed(config.policy.pools)}"
        raise BadRequestError(message, param="pool")


ENDPOINTS = (
    Endpoint(
        "POST",
        "/admin/v1/readings",
        create,
        Permission.ADD_READING,
        TENANT_OF_BODY,
        "What was metered elsewhere, such as storage; 200 where the same reading is there already",
        TakenReading,
        body=NewReading,
        status=201,
        again=True,
    ),
)
