"""A question that wants a reply: asked, then answered, declined (`rejected`), withdrawn, or expired."""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class QuestionState(StrEnum):
    """Where a question stands."""

    asked = "asked"
    answered = "answered"
    rejected = "rejected"
    withdrawn = "withdrawn"
    expired = "expired"


class QuestionEvent(StrEnum):
    """What may happen to a question."""

    answer = "answer"
    reject = "reject"
    """Whoever was asked declines to answer."""
    withdraw = "withdraw"
    expire = "expire"
    hand_over = "hand_over"
    """Who was asked did not answer, and the next in the chain is asked."""


_S, _E = QuestionState, QuestionEvent

QUESTION: Final = Machine(
    "question",
    _S.asked,
    {
        _S.asked: {
            _E.answer: _S.answered,
            _E.reject: _S.rejected,
            _E.withdraw: _S.withdrawn,
            _E.expire: _S.expired,
            _E.hand_over: _S.asked,
        }
    },
    final={_S.answered, _S.rejected, _S.withdrawn, _S.expired},
)
