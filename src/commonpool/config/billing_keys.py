"""The keys of money: prices, shared costs, budgets. Reasons for the defaults are in docs/configuration.md."""

from commonpool.config import kinds
from commonpool.config.kinds import between, choice, positive
from commonpool.config.quantities import format_permille
from commonpool.config.shape import Either, Field, Record, Series, Table
from commonpool.config.structs import Billing
from commonpool.core.billing import LAYERS, SPLITS
from commonpool.core.ledger import GPU_HOUR, METERS
from commonpool.core.model import Budget, Lending

STEPS_MAX = 256
COSTS_MAX = 256
FEES = tuple(meter for meter in METERS if meter != GPU_HOUR)  # what is priced beside GPU time


def _unpriced(meter: str) -> str:
    return "as million_tokens_in" if meter == "million_tokens_cached" else "not charged"


PRICE = Either(
    kinds.MONEY,
    Series(
        Record(
            (
                Field("price", kinds.MONEY, "What it costs from then on.", required=True),
                Field(
                    "from",
                    kinds.DATE,
                    "The day from which it holds, in the billing time zone.",
                    derived="of the first: since ever",
                ),
            )
        ),
        STEPS_MAX,
        1,
        distinct=False,  # their days tell
    ),
)
LENDING = Either(
    kinds.PERMILLE,
    Record(
        (
            Field("rate", kinds.PERMILLE, "Part of the price.", default=format_permille(Lending("").permille)),
            Field("hours", Table(kinds.PERMILLE, 24, 1, kinds.HOURS), "Hours of the day with a rate of their own."),
        )
    ),
)
PRICES = Record(
    (
        Field("currency", kinds.CURRENCY, "Billing currency.", required=True),
        Field(
            "time_zone",
            kinds.TIME_ZONE,
            "Whose midnights part the days and months of bills.",
            default=Billing().time_zone,
        ),
        Field(
            "gpu_hour",
            Table(PRICE, 64),
            "Price of one GPU for an hour, for every pool; or a list of prices, each with the day from which it holds.",
            required=True,
        ),
        Field(
            "lending",
            Table(LENDING, 64),
            "What a borrower pays the lender, as a part of the pool's price.",
            derived="100%",
        ),
        Field(
            "meters",
            Record(tuple(Field(meter, PRICE, f"Price of one {meter}.", derived=_unpriced(meter)) for meter in FEES)),
            "Prices of what is metered beside GPU time.",
        ),
    )
)
COST = Record(
    (
        Field("name", kinds.COST_NAME, "What it is for.", required=True),
        Field("layer", choice(*LAYERS), "Which layer of the platform it belongs to.", required=True),
        Field("month", kinds.MONEY, "How much a month.", required=True),
        Field("split", choice(*SPLITS), "How it is split among the tenants.", required=True),
        Field("pool", kinds.NAME, "Whose tenants bear it.", derived="all pools"),
        Field("from", kinds.DATE, "Its first day.", derived="since ever"),
        Field("until", kinds.DATE, "The first day without it.", derived="for ever"),
    )
)
COSTS = Series(COST, COSTS_MAX, distinct=False)  # names and days tell
BUDGET = Record(
    (
        Field(
            "month",
            positive(kinds.MONEY),
            "Most that it may spend in a calendar month; more is refused.",
            derived="no budget",
        ),
        Field(
            "soft",
            between(kinds.PERCENT, "1%", "100%"),
            "Part of the budget from which on a warning says so.",
            default=f"{Budget(0).soft_percent}%",
        ),
    )
)
RETENTION = between(kinds.DURATION, "1d", "3650d")
