"""Given shapes that are asked for, then how much of what is free could be used, by the definition and by the index."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core.footprint import Footprint
from commonpool.core.fragmentation import SHAPES_MAX, WEIGHT_TOTAL, Measure, Shapes
from commonpool.core.inventory import Inventory
from tests.core.sheds import node, part, put, shed

SHAPES = st.lists(
    st.tuples(
        st.builds(
            Footprint,
            st.just(1),
            st.sampled_from([100, 300, 500, 700, 1000]),
            cpu_milli=st.sampled_from([0, 1000, 4000]),
            memory_mib_host=st.sampled_from([0, 2000]),
        )
        | st.builds(Footprint, st.sampled_from([2, 4]), st.just(1000), cpu_milli=st.sampled_from([0, 8000])),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item[0],
)


def fragmented(inventory: Inventory, weights: list[tuple[Footprint, int]]) -> Fraction:
    """By the definition, over all nodes: what each shape could not use, weighted."""
    total = sum(weight for _, weight in weights)
    unusable = Fraction(0)
    for each in inventory.nodes():
        free = [1000 - sum(p.milli_gpu for p in inventory.holders(d.id).values()) for d in each.devices]
        there = inventory.holders(each.name).values()
        stranded = []
        for have, taken, asked in (
            (each.cpu_milli, sum(p.cpu_milli for p in there), "cpu_milli"),
            (each.memory_mib, sum(p.memory_mib for p in there), "memory_mib_host"),
        ):
            short = Fraction(0)
            for shape, weight in weights:
                need = getattr(shape, asked) * 1000 // shape.total_milli_gpu  # beside each whole GPU
                if have and need * sum(free) > (have - taken) * 1000:
                    short += weight * (sum(free) - Fraction((have - taken) * 1000, need))
            stranded.append(short)
        for shape, weight in weights:
            able = [milli for milli in free if milli >= shape.milli_gpu]
            unusable += weight * (sum(free) - (sum(able) if len(able) >= shape.devices else 0))
        unusable += max(stranded)
    return unusable / total


def test_a_card_is_usable_for_what_fits_on_it() -> None:
    # Given halves and whole GPUs, asked for equally often, and a card of which 300 are taken,
    inventory = shed(node("n", 2))
    weights = [(part(500), 1), (Footprint(1, 1000), 1)]
    inventory.adopt("h", "a", ["n/0"], 300)
    # then of 1700 free the 700 are unusable for whole GPUs: 350 on average.
    assert fragmented(inventory, weights) == 350


def test_gpus_beside_too_little_cpu_are_stranded() -> None:
    # Given a shape of 1 GPU with 4 CPUs, and 4 GPUs beside 6,
    measure = Measure([(Footprint(1, 1000, cpu_milli=4000), 1)])
    # then 2.5 are stranded; without any CPU all, with enough none.
    assert measure.stranded(4000, 6000, 10**9) == 2500
    assert (measure.stranded(4000, 0, 10**9), measure.stranded(4000, 16_000, 10**9)) == (4000, 0)
    assert measure.stranded(0, 0, 0) == 0


@given(SHAPES, st.integers(0, 8000), *[st.integers(-9000, 90_000)] * 4)
def test_with_more_cpu_and_memory_never_more_is_stranded(
    shapes: list[tuple[Footprint, int]], free: int, cpu: int, more_cpu: int, mib: int, more_mib: int
) -> None:
    """What lets the index skip the hosts that could not be better (`ranking.Order`)."""
    measure = Measure(shapes)
    assert measure.stranded(free, cpu + abs(more_cpu), mib + abs(more_mib)) <= measure.stranded(free, cpu, mib)


@settings(max_examples=60, deadline=None)
@given(
    SHAPES,
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([0, 4000, 9000]), st.sampled_from([0, 5000])),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 5), max_size=12),
)
def test_the_growth_that_is_shown_is_the_growth_by_the_definition(
    shapes: list[tuple[Footprint, int]], sizes: list[tuple[int, int, int]], asked: list[int]
) -> None:
    inventory = shed(*(node(f"n{at}", n, cpu_milli=cpu, memory_mib=mib) for at, (n, cpu, mib) in enumerate(sizes)))
    learned = Shapes()
    for shape, times in shapes:
        inventory.asked(shape, times)
        learned.asked(shape, times)
    inventory.isolate("guaranteed")  # the weights in force are those of all that was asked for
    inventory.isolate("shared")
    weights = learned.weights()
    for at, which in enumerate(asked):
        footprint = shapes[which % len(shapes)][0]
        before = fragmented(inventory, weights)
        shown = next((each for each in inventory.candidates(footprint, "a", 0) if each.barrier is None), None)
        taken = put(inventory, f"h{at}", footprint)
        assert bool(taken) == (shown is not None)
        if shown is not None:
            assert abs(fragmented(inventory, weights) - before - shown.growth) <= 2


def test_weights_follow_what_is_asked_for_and_are_bounded() -> None:
    shapes = Shapes()
    changed = [shapes.asked(part(500), 1) for _ in range(8)]
    assert changed == [True, True, False, True, False, False, False, True]
    for milli in range(1, 1000):
        shapes.asked(part(milli), 2)
    weights = shapes.weights()
    assert len(weights) == SHAPES_MAX
    assert weights[0][0] == part(500)
    assert 0.9 * WEIGHT_TOTAL < sum(weight for _, weight in weights) <= WEIGHT_TOTAL
    for _ in range(20_000):
        shapes.asked(Footprint(1, 1000), 1)
    assert shapes.weights()[0][0] == Footprint(1, 1000)
    assert part(500) not in dict(shapes.weights()), "what is not asked for any more is forgotten"


def test_work_that_takes_no_gpu_and_work_that_may_lie_apart() -> None:
    shapes = Shapes()
    assert not shapes.asked(Footprint(0, 0, cpu_milli=1000), 1)
    shapes.asked(Footprint(8, 1000, together="any", cpu_milli=8000), 1)
    assert shapes.weights() == [(Footprint(1, 1000, cpu_milli=1000), WEIGHT_TOTAL)]
