"""A state machine as a table: `(state, event) -> state`, checked when it is built.

Laws: a machine never changes; `step` is one lookup; an event that the table does not name is an error and never a silent no-op;
every state is reachable; every state that is not final has a way out, and a final one has none.
States and events are StrEnums, so the plain strings of a journal step a machine as well as its own members.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from protocols.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Machine(Generic[S, E]):
    """A named transition table with one initial state."""

    __slots__ = ("_events", "_final", "_initial", "_legal", "_name", "_states", "_table")

    def __init__(self, name: str, initial: S, table: Mapping[S, Mapping[E, S]], final: Iterable[S] = ()) -> None:
        """Build the machine and check it.

        Raises:
            ValueError: a state is unreachable or stuck, a final state has a way out, or an event is never used.
        """
        self._name, self._initial, self._final = name, initial, frozenset(final)
        self._table = {(state, event): target for state, row in table.items() for event, target in row.items()}
        self._states = tuple(type(initial))
        self._legal = {state: frozenset(table.get(state, {})) for state in self._states}
        self._events = _all_events(name, self._table)
        self._check()

    @property
    def name(self) -> str:
        """The machine's name, as errors and drawings show it."""
        return self._name

    @property
    def initial(self) -> S:
        """The state in which everything begins."""
        return self._initial

    @property
    def final(self) -> frozenset[S]:
        """The states that nothing leaves."""
        return self._final

    @property
    def states(self) -> tuple[S, ...]:
        """All states, in the order in which they are declared."""
        return self._states

    @property
    def events(self) -> tuple[E, ...]:
        """All events, in the order in which they are declared."""
        return self._events

    def step(self, state: S, event: E) -> S:
        """Return the state that follows.

        Raises:
            IllegalTransition: the event is not legal in this state.
        """
        try:
            return self._table[state, event]
        except KeyError:
            raise IllegalTransition(self._name, state, event, self._legal.get(state, frozenset())) from None

    def legal(self, state: S) -> frozenset[E]:
        """Return the events that are legal in a state."""
        return self._legal[state]

    def is_final(self, state: S) -> bool:
        """Tell whether nothing leaves this state."""
        return state in self._final

    def transitions(self) -> Iterator[tuple[S, E, S]]:
        """Yield every `(state, event, next state)` in the order of the table."""
        for (state, event), target in self._table.items():
            yield state, event, target

    def __repr__(self) -> str:
        return f"<Machine {self._name}: {len(self._states)} states, {len(self._table)} transitions>"

    def _check(self) -> None:
        for state in self._states:
            if state in self._final and self._legal[state]:
                raise ValueError(f"machine {self._name}: the final state {state.value!r} has a way out: {_names(self._legal[state])}")
            if state not in self._final and not self._legal[state]:
                raise ValueError(f"machine {self._name}: the state {state.value!r} is not final and has no way out")
        if unreachable := set(self._states) - self._reachable():
            raise ValueError(f"machine {self._name}: unreachable from {self._initial.value!r}: {_names(unreachable)}")
        if unused := set(self._events) - {event for _, event in self._table}:
            raise ValueError(f"machine {self._name}: no state knows the events {_names(unused)}")

    def _reachable(self) -> set[S]:
        seen = {self._initial}
        todo = [self._initial]
        while todo:
            state = todo.pop()
            for event in self._legal[state]:
                target = self._table[state, event]
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen


def _all_events(name: str, table: Mapping[tuple[S, E], S]) -> tuple[E, ...]:
    """Return every member of the one enum to which the events of a table belong."""
    kinds = {type(event) for _, event in table}
    if len(kinds) != 1:
        raise ValueError(f"machine {name}: the events must be members of one enum, not of {len(kinds)}")
    return tuple(kinds.pop())


def _names(members: Iterable[StrEnum]) -> str:
    return ", ".join(sorted(repr(member.value) for member in members))
