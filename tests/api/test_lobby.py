"""Given connections that ask and such that do not, then those that do not make way, and no other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from commonpool.api.lobby import Lobby


class Guest:
    """A connection that has never asked, has asked and waits (`busy`), or has asked and was answered (`used`)."""

    def __init__(self, lobby: Lobby, address: str = "10.0.0.1", state: str = "new") -> None:
        self.lobby = lobby
        self.address = address
        self.state = state
        self.gone = False
        lobby.enter(self)
        if state != "new":
            lobby.asks(self)
        if state == "used":
            lobby.rests(self)

    def leave(self) -> None:
        self.gone = True
        self.lobby.left(self)  # as a connection does when it is lost, a second time


def test_one_that_never_asked_makes_way_first_then_the_oldest() -> None:
    lobby = Lobby(most=3, per_address=3)
    guests = [Guest(lobby, state=state) for state in ("used", "new", "new", "used", "used", "used")]
    assert [guest.gone for guest in guests] == [True, True, True, False, False, False]
    assert len(lobby) == 3


def test_of_those_that_were_answered_the_longest_idle_makes_way() -> None:
    lobby = Lobby(most=3, per_address=3)
    first, second, third = (Guest(lobby, state="used") for _ in range(3))
    lobby.asks(first)
    lobby.rests(first)
    lobby.asks(second)
    Guest(lobby, state="busy")
    assert [guest.gone for guest in (first, second, third)] == [False, False, True]


def test_where_all_are_busy_the_new_one_goes() -> None:
    lobby = Lobby(most=2, per_address=2)
    guests = [*(Guest(lobby, state="busy") for _ in range(2)), Guest(lobby)]
    assert [guest.gone for guest in guests] == [False, False, True]
    guests[0].leave()
    assert not Guest(lobby).gone


def test_an_address_makes_way_for_itself() -> None:
    lobby = Lobby(most=10, per_address=2)
    guests = [Guest(lobby, "10.0.0.2"), *(Guest(lobby) for _ in range(3))]
    assert [guest.gone for guest in guests] == [False, True, False, False]


def test_an_address_of_which_all_are_busy_takes_nobody_elses_place() -> None:
    lobby = Lobby(most=10, per_address=2)
    guests = [Guest(lobby, "10.0.0.2"), *(Guest(lobby, state="busy") for _ in range(2)), Guest(lobby)]
    assert [guest.gone for guest in guests] == [False, False, False, True]


def test_what_a_connection_says_that_has_left_counts_for_nothing() -> None:
    lobby = Lobby(most=1, per_address=1)
    gone = Guest(lobby)
    gone.leave()
    lobby.asks(gone)
    lobby.rests(gone)
    assert len(lobby) == 0
    here = Guest(lobby, state="busy")
    assert Guest(lobby).gone
    assert not here.gone


class Counted(Guest):
    """One that counts how often any is looked at."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getattribute__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getattribute__(name)


def test_a_newcomer_costs_the_same_however_many_are_connected() -> None:
    def cost(most: int) -> int:
        lobby = Lobby(most, most)
        kept = [Counted(lobby, state="busy") for _ in range(most)]
        Counted.looks = 0
        late, looks = Counted(lobby), Counted.looks
        assert late.gone
        assert not any(guest.gone for guest in kept)
        return looks

    assert cost(8) == cost(512)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["new", "used", "busy"]), st.booleans()),
        max_size=25,
    ),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_never_more_than_there_may_be_and_nobody_busy_is_cut(
    arrivals: list[tuple[str, str, bool]], most: int, per_address: int
) -> None:
    lobby = Lobby(most, per_address)
    guests: list[Guest] = []
    for address, state, one_leaves in arrivals:
        before = [guest for guest in guests if not guest.gone]
        if one_leaves and before:
            before.pop(len(before) // 2).leave()
        guests.append(Guest(lobby, address, state))
        here = [guest for guest in guests if not guest.gone]
        assert len(here) == len(lobby) <= most
        assert all(sum(guest.address == each for guest in here) <= per_address for each in "abc")
        assert all(guest.state != "busy" for guest in before if guest.gone)
        # The new one goes only where nobody could make way for it.
        if guests[-1].gone:
            full = [each for each in before if each.address == address]
            rivals = full if len(full) >= per_address else before
            assert all(guest.state == "busy" for guest in rivals)
