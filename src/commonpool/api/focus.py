"""A bill as FOCUS rows (the FinOps Open Cost and Usage Specification, version 1.2): one for each charge of each day.

Tenants, groups and the platform are sub accounts of one billing account. What a lender earns is a credit; what is about
an earlier day, or takes back more than it charges, is an adjustment; all else is usage. A shared cost stands in the
rows of those who pay it, which sum to it: `x_AllocatedMethodId` says how it was split, `x_AllocatedResourceId` names
it.

A unit price is cost / quantity, since a day of a charge may have several prices. Columns of ours begin with `x_`.
"""

import json
from datetime import UTC, datetime
from decimal import Context, Decimal

from commonpool.api.bill_formats import decimal, name, plain, rows
from commonpool.api.wire import bill as wire
from commonpool.config.calendar import Calendar
from commonpool.core.billing import EARNED
from commonpool.core.ledger import PLATFORM
from commonpool.core.model import NS_PER_S
from commonpool.core.statement import CORRECTION, WORK

BY = ("day", "tenant", "group", *WORK, CORRECTION)
ISSUER = "commonpool"
# By the unit of a charge: how many of them make one unit of FOCUS, and how that is called.
UNITS = {
    "gpu_seconds": (Decimal(3600), "GPU-Hours"),
    "core_seconds": (Decimal(3600), "Core-Hours"),
    "requests": (Decimal(1), "Requests"),
    "tokens": (Decimal(1_000_000), "1000000 Tokens"),
    "bytes": (Decimal(10**9), "GB"),
    "mib_seconds": (Decimal(1024 * 3600), "GiB-Hours"),
}
_SHARED = (Decimal(1), "Shares")  # what a shared cost is a quantity of
_PLACES = Context(prec=28)
_TAGS = ("app", "cost_center", "model", "version", "type", "tier", "endpoint")
COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountStatus",  # there are none, but rules of the specification are about it
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
    "x_AllocatedMethodId",
    "x_AllocatedResourceId",
    "x_ChargeKind",
    "x_CostLayer",
    "x_Group",
    "x_Quantity",
    "x_QuantityUnit",
)


def csv_text(table: wire.BillTable) -> str:
    """The rows of a bill that was asked for by BY, charges of nothing at no cost left out."""
    calendar = Calendar(table.time_zone)
    found = [
        _row(table, calendar, line, charge)
        for line in table.lines
        for charge in line.charges
        if charge.cost_micro or charge.quantity
    ]
    return rows([COLUMNS, *([row.get(column, "") for column in COLUMNS] for row in found)])


def _row(table: wire.BillTable, calendar: Calendar, line: wire.BillLine, charge: wire.Charge) -> dict[str, str]:
    of = dict(zip(table.by, line.group, strict=True))
    month_start, month_end = calendar.month(of["day"][:7])
    day_start, day_end = calendar.day(of["day"])
    cost = decimal(charge.cost_micro)
    quantity, unit = _measured(charge)
    row = {
        "BilledCost": cost,
        "BillingAccountId": ISSUER,
        "BillingAccountName": ISSUER,
        "BillingAccountType": "Cluster",
        "BillingCurrency": table.currency,
        "BillingPeriodEnd": _moment(month_end),
        "BillingPeriodStart": _moment(month_start),
        "ChargeDescription": plain(name(charge)),
        "ChargeFrequency": "Usage-Based" if charge.quantity is not None else "Recurring",
        "ChargePeriodEnd": _moment(min(day_end, max(table.until_ns, day_start))),
        "ChargePeriodStart": _moment(day_start),
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "InvoiceId": f"{ISSUER}-{of['day'][:7]}",
        "InvoiceIssuerName": ISSUER,
        "ListCost": cost,
        "PricingCurrency": table.currency,
        "PricingCurrencyEffectiveCost": cost,
        "ProviderName": ISSUER,
        "PublisherName": ISSUER,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": ISSUER,
        "ServiceSubcategory": "Generative AI",
        "SubAccountId": of["tenant"],
        "SubAccountName": of["tenant"],
        "SubAccountType": _account_type(of["tenant"]),
        "Tags": json.dumps({key: of[key] for key in _TAGS if of[key]}, ensure_ascii=False),
        "x_AllocatedMethodId": charge.split,
        "x_AllocatedResourceId": plain(charge.name) if charge.split else "",
        "x_ChargeKind": charge.kind,
        "x_CostLayer": charge.layer,
        "x_Group": of["group"],
        "x_Quantity": format(quantity, "f"),
        "x_QuantityUnit": unit,
    }
    row |= _resource(of, charge)
    if charge.kind == EARNED:
        return row | {"ChargeCategory": "Credit"}
    if of[CORRECTION] or charge.cost_micro < 0 or quantity <= 0:
        return row | {"ChargeCategory": "Adjustment"}
    return row | _usage(of, charge, quantity, unit)


def _measured(charge: wire.Charge) -> tuple[Decimal, str]:
    size, unit = UNITS[charge.unit] if charge.quantity is not None else _SHARED
    return _PLACES.divide(Decimal(1) if charge.quantity is None else charge.quantity, size), unit


def _usage(of: dict[str, str], charge: wire.Charge, quantity: Decimal, unit: str) -> dict[str, str]:
    """What only usage has: a quantity and its price."""
    price = format(_PLACES.divide(Decimal(decimal(charge.cost_micro)), quantity), "f")
    sku = "/".join(part for part in (of["pool"], charge.kind, charge.name) if part)
    return {
        "ChargeCategory": "Usage",
        "ConsumedQuantity": format(quantity, "f"),
        "ConsumedUnit": unit,
        "ContractedUnitPrice": price,
        "ListUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "PricingQuantity": format(quantity, "f"),
        "PricingUnit": unit,
        "SkuId": plain(sku),
        "SkuMeter": plain(charge.name),
        "SkuPriceId": plain(sku),
    }


def _resource(of: dict[str, str], charge: wire.Charge) -> dict[str, str]:
    """What was used: a model, else the devices of a pool, else the shared cost."""
    if charge.split:
        what, kind = plain(charge.name), "Shared cost"
    elif of["model"]:
        what, kind = of["model"], "Model"
    elif of["pool"]:
        what, kind = of["pool"], "GPU pool"
    else:
        return {}
    return {"ResourceId": what, "ResourceName": what, "ResourceType": kind}


def _account_type(tenant: str) -> str:
    if tenant == PLATFORM:
        return "Platform"
    return "Group" if tenant.startswith("group:") else "Tenant"


def _moment(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
