"""An hour against what there was: what differs, and why."""

from commonpool.control.reconciling import LAG_NS, Comparison, compare
from commonpool.core.closing import close
from commonpool.core.ledger import PLATFORM, Hour, Phase, Rates, Span, Standing
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.store.ledger import BEFORE, DOWN, LAGS, UNKNOWN, UNSEEN

H = NS_PER_HOUR
END = 2 * H
WHOLE = (Standing("main", H, END, 4000, {"tenant:a": 4000}),)


def span(name: str, phase: Phase, start: int, end: int, milli_gpu: int = 1000) -> Span:
    return Span(name, phase, "main", "m", PLATFORM, milli_gpu, start, end)


def compared(*spans: Span, standings: tuple[Standing, ...] = WHOLE, begun: bool = True) -> Comparison:
    before = Standing("main", 0, H, 4000, {}) if begun else None
    hour = Hour("main", H, Rates(2_000_000, 1_000_000), standings, spans, before=before)
    comparison = compare(hour, close(hour))
    books = comparison.reconciliation
    assert books.charged == books.devices == 4000 * (H if begun else END - standings[0].start_ns)
    assert sum(books.causes.values()) == books.held - books.reported
    return comparison


def test_what_was_seen_as_it_was_given_out_has_no_difference() -> None:
    loading, serving = span("m-0.1", Phase.LOADING, H, H + 9), span("m-0.1", Phase.SERVING, H + 9, END)
    comparison = compared(loading, serving, span("m-0.1", Phase.HELD, H, END))
    assert comparison.reconciliation.held == comparison.reconciliation.reported == 1000 * H
    assert (comparison.reconciliation.causes, comparison.odd) == ({}, ())


def test_a_start_that_comes_a_moment_later_is_a_lag_and_a_long_one_is_odd() -> None:
    serving = span("m-0.1", Phase.SERVING, H, END)
    comparison = compared(serving, span("m-0.1", Phase.HELD, H + LAG_NS, END))
    assert (comparison.reconciliation.causes, comparison.odd) == ({LAGS: 1000 * LAG_NS}, ())
    comparison = compared(serving, span("m-0.1", Phase.HELD, H + LAG_NS + 1, END))
    assert comparison.odd == ("m-0.1",)


def test_what_only_one_of_them_knows_is_said() -> None:
    comparison = compared(
        span("core", Phase.SERVING, H, H + 60 * NS_PER_S), span("backend", Phase.HELD, H, H + 20 * NS_PER_S, 500)
    )
    assert comparison.reconciliation.causes == {UNSEEN: 60_000 * NS_PER_S, UNKNOWN: -10_000 * NS_PER_S}
    assert comparison.odd == ("core", "backend")


def test_what_only_one_of_them_knows_for_a_moment_is_a_lag() -> None:
    comparison = compared(
        span("starts", Phase.LOADING, END - LAG_NS, END), span("stops", Phase.HELD, H, H + NS_PER_S, 500)
    )
    assert (comparison.reconciliation.causes, comparison.odd) == ({LAGS: 1000 * LAG_NS - 500 * NS_PER_S}, ())
    comparison = compared(span("starts", Phase.LOADING, END - LAG_NS - 1, END))
    assert (comparison.reconciliation.causes, comparison.odd) == ({UNSEEN: 1000 * (LAG_NS + 1)}, ("starts",))


def test_what_ran_while_the_product_was_down_is_explained() -> None:
    down, up = H + 600 * NS_PER_S, H + 900 * NS_PER_S
    standings = (Standing("main", H, down, 4000, {}), Standing("main", up, END, 4000, {}))
    comparison = compared(
        span("j1", Phase.SERVING, H, down),
        span("j1", Phase.SERVING, up, END),
        span("j1", Phase.HELD, H, END),
        standings=standings,
    )
    assert (comparison.reconciliation.causes, comparison.odd) == ({DOWN: -1000 * (up - down)}, ())


def test_what_is_older_than_the_books_is_not_called_down() -> None:
    begun, down, up = H + 600 * NS_PER_S, H + 900 * NS_PER_S, H + 1200 * NS_PER_S
    standings = (Standing("main", begun, down, 4000, {}), Standing("main", up, END, 4000, {}))
    comparison = compared(
        span("j1", Phase.SERVING, begun, down),
        span("j1", Phase.SERVING, up, END),
        span("j1", Phase.HELD, H, END),
        standings=standings,
        begun=False,
    )
    assert comparison.reconciliation.causes == {BEFORE: -1000 * (begun - H), DOWN: -1000 * (up - down)}
    assert comparison.odd == ()
