# SPDX-License-Identifier: Apache-2.0
"""A failure of one part of what is read, also by a mistake in its code: a sentence; the other parts are still told."""

from typing import Callable, List, TypeVar

from vgpuctl.agent.wire.envelope import Problem

T = TypeVar("T")

_TEXT_AT_MOST = 200


def guarded(unread: List[str], what: str, read: Callable[[], T], otherwise: T) -> T:
    """Return what a part reads, or `otherwise` with a sentence in `unread`."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever the mistake is, the other parts of the host are needed
        unread.append(sentence(what, error))
        return otherwise


def sentence(what: str, error: BaseException) -> str:
    """Say why a part is missing; of a mistake, where in the code it is."""
    if isinstance(error, Problem):
        return f"{what} cannot be read: {error.message}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})"
    said = " ".join(str(error).split())[:_TEXT_AT_MOST]
    return f"{what} cannot be read, by a mistake in vgpuctl's agent: {type(error).__name__}: {said}{where}"
