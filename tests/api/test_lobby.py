"""Given connections that ask and such that do not, then those that do not make way, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.api.lobby import Lobby


class Guest:
    def __init__(self, lobby: Lobby, address: str = "10.0.0.1", *, idle: bool = True, new: bool = True) -> None:
        self.lobby = lobby
        self.address = address
        self.idle = idle
        self.new = new
        self.gone = False

    def leave(self) -> None:
        self.gone = True
        self.lobby.left(self)  # as a connection does when it is lost, a second time


def test_one_that_never_asked_makes_way_first_then_the_oldest() -> None:
    lobby = Lobby(most=3, per_address=3)
    used, first, second = Guest(lobby, new=False), Guest(lobby), Guest(lobby)
    more = [Guest(lobby, new=False) for _ in range(3)]
    for guest in (used, first, second, *more):
        lobby.enter(guest)
    assert [guest.gone for guest in (used, first, second, *more)] == [True, True, True, False, False, False]
    assert len(lobby) == 3


def test_where_all_are_busy_the_new_one_goes() -> None:
    lobby = Lobby(most=2, per_address=2)
    guests = [Guest(lobby, idle=False, new=False) for _ in range(2)]
    late = Guest(lobby)
    for guest in (*guests, late):
        lobby.enter(guest)
    assert [guest.gone for guest in (*guests, late)] == [False, False, True]


def test_an_address_makes_way_for_itself() -> None:
    lobby = Lobby(most=10, per_address=2)
    other = Guest(lobby, "10.0.0.2")
    mine = [Guest(lobby) for _ in range(3)]
    for guest in (other, *mine):
        lobby.enter(guest)
    assert [guest.gone for guest in (other, *mine)] == [False, True, False, False]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans(), st.booleans())),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_never_more_than_there_may_be_and_nobody_busy_is_cut(
    arrivals: list[tuple[str, bool, bool]], most: int, per_address: int
) -> None:
    lobby = Lobby(most, per_address)
    guests: list[Guest] = []
    for address, idle, new in arrivals:
        before = [guest for guest in guests if not guest.gone]
        guests.append(Guest(lobby, address, idle=idle, new=new))
        lobby.enter(guests[-1])
        here = [guest for guest in guests if not guest.gone]
        assert len(here) == len(lobby) <= most
        assert all(sum(guest.address == each for guest in here) <= per_address for each in "abc")
        assert all(guest.idle for guest in before if guest.gone)
