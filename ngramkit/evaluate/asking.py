"""A model asked for all that several drafters will have it verify, in few large passes.

A drafter that is told nothing for want of a row drafts otherwise from there on, so nothing can be
asked ahead of the drafts. But drafters do not wait for one another: each goes on until a row is
missing, what all of them lack then is one pass, and so on. Contexts are asked once, and only nodes
beside the answer are read: the answer itself is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngramkit.drafters.base import Drafter, DraftTree, TokenArray
from ngramkit.evaluate.branches import Forest
from ngramkit.evaluate.known import Known
from ngramkit.evaluate.oracle import Model, Oracle, Witness
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay import Tally, drafts_of


@dataclass
class _Replay:
    """One drafter at one budget: `lacking` is the draft that it waits with, None when done."""

    drafter: Drafter
    budget: int
    lacking: tuple[int, DraftTree, list[int]] | None = None

    def begin(self, turn: Turn, oracle: Oracle) -> None:
        self._witness = oracle.witness(turn)
        self._drafts = drafts_of(self.drafter, turn, self.budget, Tally(), None, self._witness)

    def go_on(self) -> None:
        self.lacking = None
        for tree in self._drafts:
            self.lacking = self._witness.missing(tree)
            if self.lacking is not None:
                return


def ask(
    oracle: Oracle,
    records: Sequence[Record],
    makers: Sequence[Callable[[], Drafter]],
    budgets: Sequence[int],
) -> Iterator[int]:
    """Asks `oracle.model` for what is not on record of replays of `records`, with a new drafter of
    each of `makers` at each of `budgets`; the rows added, record by record."""
    model = oracle.model
    if model is None:
        raise ValueError("the oracle has no model to ask")
    for record in records:
        made = [(make(), budget) for make in makers for budget in budgets]
        listening = [each for each in made if getattr(each[0], "wants_evidence", False)]
        replays = [_Replay(drafter, budget) for drafter, budget in listening]
        yield sum(_turn(oracle, model, turn, replays) for turn in record.turns if len(turn.answer))


def _turn(oracle: Oracle, model: Model, turn: Turn, replays: Sequence[_Replay]) -> int:
    known, before = oracle.witness(turn).known, oracle.rows
    spine = _spine(Witness(known, model), turn.answer)
    for each in replays:
        each.begin(turn, oracle)
        each.go_on()
    while waiting := [each for each in replays if each.lacking is not None]:
        forest = Forest(known, turn.answer, spine)
        for each in waiting:
            assert each.lacking is not None
            forest.add(*each.lacking)
        branches, order = forest.ordered()
        model.begin(known.prompt)
        forest.put(order, *model.after_branches(turn.answer, branches))
        for each in waiting:
            each.go_on()
    return oracle.rows - before


def _spine(witness: Witness, answer: TokenArray) -> list[int]:
    """The row after each number of tokens of the answer; the model is asked where there is none."""
    witness.of_prompt()
    witness.write(answer[:1])
    count = len(answer) - 1
    chain = np.arange(-1, count - 1, dtype=np.int32)
    zeros = np.zeros(count, np.float32)
    witness.of(DraftTree(answer[1:], chain, zeros, zeros.astype(np.uint8)))
    return _rows_along(witness.known, answer)


def _rows_along(known: Known, answer: TokenArray) -> list[int]:
    rows = [known.root]
    for token in answer.tolist():
        rows.append(known.child(rows[-1], token))
    return rows
