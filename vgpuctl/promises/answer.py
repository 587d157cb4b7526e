# SPDX-License-Identifier: Apache-2.0
"""The answer of one comparison, before it becomes a finding of its row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vgpuctl.model.promise import Witness
from vgpuctl.promises.witnessed import NotLookedAt


@dataclass(frozen=True)
class RowAnswer:
    """The promise of one subject, and the value seen. is_kept: None where it was not looked at; `why` has the reason.

    remedy: where to look if it is broken. witness: where it is another than the row's.
    """

    subject: str
    is_kept: bool | None
    promised: str
    seen: str = ""
    why: str = ""
    remedy: str = ""
    witness: Witness | None = None


RowAnswers = Iterator[RowAnswer]


def not_looked(subject: str, promised: str, why: NotLookedAt | str, witness: Witness | None = None) -> RowAnswer:
    """The answer where nobody could look."""
    reason = why.why if isinstance(why, NotLookedAt) else why
    return RowAnswer(subject, None, promised, why=reason, witness=witness)


def same(subject: str, promised: Iterable[str], seen: Iterable[str], remedy: str) -> RowAnswer:
    """Kept when both say the same, in the same order."""
    wanted, found = list(promised), list(seen)
    return RowAnswer(subject, wanted == found, _words(wanted), _words(found), remedy=remedy)


def _words(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"
