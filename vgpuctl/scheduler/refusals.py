# SPDX-License-Identifier: Apache-2.0
"""Refusals of many GPUs and hosts in few lines: grouped by their reason, the nearest to fitting first."""

from collections.abc import Sequence

from vgpuctl.model.placement import Rejection
from vgpuctl.model.plural import counted
from vgpuctl.sharing.codes import Code

_GROUPS_IN_SHORT = 2
_ORDER = {str(code): number for number, code in enumerate(Code)}


def group_refusals(rejections: Sequence[Rejection]) -> list[list[Rejection]]:
    """Rejections of one code together, the nearest to fitting first: the last rule is the nearest."""
    groups: dict[str, list[Rejection]] = {}
    for one in rejections:
        groups.setdefault(one.code, []).append(one)
    return sorted(groups.values(), key=lambda group: (-_ORDER.get(group[0].code, -1), -len(group)))


def where(group: Sequence[Rejection]) -> str:
    """The places of a group: `gpu1 0000:41:00.0` for one, else `2 GPUs of gpu1`, `12 GPUs of 3 hosts`, `2 hosts`."""
    if len(group) == 1:
        return group[0].host if group[0].gpu is None else f"{group[0].host} {group[0].gpu}"
    names = {one.host for one in group}
    hosts = counted(len(names), "host") if len(names) > 1 else group[0].host
    gpus = sum(one.gpu is not None for one in group)
    return f"{counted(gpus, 'GPU')} of {hosts}" if gpus else hosts


def why(group: Sequence[Rejection]) -> str:
    """The reason of a group; where the reasons differ in their numbers, the first as an example."""
    if len({one.reason for one in group}) == 1:
        return group[0].reason
    return f"for example {where(group[:1])}: {group[0].reason}"


def summarise(rejections: Sequence[Rejection], *, is_whole: bool = False) -> list[str]:
    """One line for each group, and how to see every refusal when something was grouped. is_whole: a line for each."""
    told = [one for one in rejections if one.code != Code.HOST_WANTED_OTHER]
    groups = [[one] for one in told] if is_whole else group_refusals(told)
    lines = [f"{where(group)}: {why(group)} ({group[0].code})" for group in groups]
    if any(len(group) > 1 for group in groups):
        lines.append(f"--all-refusals shows each of the {counted(sum(map(len, groups)), 'refusal')}")
    return lines


def in_short(rejections: Sequence[Rejection]) -> str:
    """The refusals that matter to one who waits, at most two groups of them, the nearest to fitting first.

    Those come first that end with time or by an operator's act: another board never becomes the one that was asked for.
    """
    may_end = [one for one in rejections if not Code(one.code).is_for_ever()]
    groups = group_refusals(may_end or rejections)[:_GROUPS_IN_SHORT]
    return "; ".join(f"{where(group)}: {why(group)}" for group in groups)


def stays_refused(rejections: Sequence[Rejection]) -> bool:
    """True if reading the hosts again cannot change any of the refusals: they follow from the request."""
    return bool(rejections) and all(Code(one.code).follows_from_the_request() for one in rejections)
