# SPDX-License-Identifier: Apache-2.0
"""Suggestions for a type or model that no host has."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.catalog.lookup import has_words, words_of

_ASKED_BY_NAME = tuple(str(kind) for kind in Sharing if kind.is_asked_for_by_name())


@dataclass(frozen=True)
class Suggestion:
    """is_known: whether the catalogue has it for a model that the fleet lacks."""

    message: str
    hint: str
    is_known: bool


def suggest_type(name: str, hosts: Sequence[HostFacts]) -> Suggestion | None:
    """Near names for a vGPU type that no host offers; None when a host has it, or could have it."""
    offered: set[str] = set()
    present: set[str] = set()
    for facts in hosts:
        for gpu in facts.gpus:
            offered.update(catalog.short_name(one.name) for one in gpu.types)
            board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
            if board is not None:
                present.add(board.key)
    known = catalog.boards_with_type(name)
    if name in offered or any(board.key in present for board in known):
        return None
    near = near_names(name, offered if known else {*offered, *_ASKED_BY_NAME})
    if known:
        models = " or ".join(board.name for board in known)
        hint = f"near it, your hosts have {', '.join(near)}" if near else "run `vgpuctl list-profiles`"
        return Suggestion(f"{name} is a type of {models}, and no host that may take it has one", hint, is_known=True)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        elsewhere = near_names(name, catalog.type_names())
        hint = "run `vgpuctl list-profiles` to see the types of your hosts"
        if elsewhere:
            hint = f"the catalogue knows {', '.join(elsewhere)}, which your hosts do not have; {hint}"
    message = f"no host has a vGPU type {name!r}, and the catalogue has none"
    return Suggestion(message, hint, is_known=False)


def suggest_board(name: str, hosts: Sequence[HostFacts]) -> Suggestion | None:
    """Near names for a GPU model that no host has; None when a host has it."""
    known = {board.key for board in catalog.boards_named(name)}
    present: set[str] = set()
    for facts in hosts:
        for gpu in facts.gpus:
            board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
            if board is not None and board.key in known:
                return None
            if gpu.name is not None and has_words(words_of(gpu.name), words_of(name)):
                return None
            title = gpu.name or (board.name if board else None)
            if title is not None:
                present.add(title)
    has = f"your hosts have {', '.join(sorted(present))}" if present else "your hosts have no GPU"
    if known:
        return Suggestion(f"no host has a GPU {name}", has, is_known=True)
    return Suggestion(f"no host has a GPU {name!r}, and the catalogue has none", has, is_known=False)


def near_names(name: str, names: Sequence[str] | set[str]) -> list[str]:
    """Up to three names that look like this one, the nearest first; one that differs only in case comes alone."""
    listed = sorted(names)
    same = [one for one in listed if one.lower() == name.lower()]
    if same:
        return same
    lower: dict[str, str] = {one.lower(): one for one in listed}
    return [lower[one] for one in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.7)]
