# SPDX-License-Identifier: Apache-2.0
"""Things are found by names and globs, each once; one that cannot be deleted keeps no other."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vgpuctl.errors import NotFound, StateError, UsageError
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion, delete_all, find_all
from vgpuctl.usecases.running.services import Services

THERE = ["b-10", "b-2", "a-1"]
ABOUT = {"word": "disk", "listed_by": "list-disks"}


def _find(_session: Session, tenant: str, name: str) -> str:
    if name not in THERE:
        raise NotFound(f"{tenant} has no {name}")
    return name


class Rules:
    """Rules over THERE that remember what was deleted; `b-2` cannot be."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.rules: Deletion[str] = Deletion(
            find=_find,
            names=lambda _session, _tenant: THERE,
            printed=lambda one: one,
            describe=lambda one: one,
            delete=self._delete,
        )

    def _delete(self, _services: Services, one: str, **_how: object) -> None:
        if one == "b-2":
            raise StateError("in use")
        self.deleted.append(one)


def _services(said: list[str]) -> Services:
    session = SimpleNamespace(tenant=lambda _name: None)
    store = SimpleNamespace(reading=lambda: contextlib.nullcontext(session))
    return cast(Services, SimpleNamespace(say=said.append, store=store))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (["b-*"], ["b-2", "b-10"]),
        (["a-1", "*", "a-1"], ["a-1", "b-2", "b-10"]),
        (["b-1?"], ["b-10"]),
        (["[ab]-1"], ["a-1"]),
    ],
)
def test_each_is_found_once_in_natural_order_of_a_glob(written: list[str], found: list[str]) -> None:
    assert find_all(_services([]), Rules().rules, "acme", written, **ABOUT, if_exists=False) == found


@pytest.mark.parametrize(
    ("written", "message"), [("c-1", "acme has no c-1"), ("c-*", "no disk of tenant acme fits c-*")]
)
def test_what_is_missing_is_an_error_or_a_remark(written: str, message: str) -> None:
    said: list[str] = []
    with pytest.raises(NotFound, match=message.replace("*", r"\*")):
        find_all(
            _services(said),
            Rules().rules,
            "acme",
            ["a-1", written],
            **ABOUT,
            if_exists=False,
        )
    assert find_all(_services(said), Rules().rules, "acme", ["a-1", written], **ABOUT, if_exists=True) == ["a-1"]
    assert said == [f"{message}, nothing to delete"]


def test_one_that_cannot_be_deleted_keeps_no_other() -> None:
    rules: Any = Rules()
    errors = delete_all(_services([]), rules.rules, ["a-1", "b-2", "b-10"])
    assert [None if one is None else one.message for one in errors] == [None, "in use", None]
    assert rules.deleted == ["a-1", "b-10"]


def test_things_that_go_together_are_all_deleted_or_none() -> None:
    gone: list[list[str]] = []
    rules = replace(Rules().rules, delete=lambda _services, things: gone.append(things), is_joint=True)
    assert delete_all(_services([]), rules, ["a-1", "b-2"]) == [None, None]
    assert delete_all(_services([]), rules, []) == []
    assert gone == [["a-1", "b-2"]]


def test_a_glob_of_tenants_is_refused_whether_or_not_things_may_be_missing() -> None:
    for if_exists in (False, True):
        with pytest.raises(UsageError, match=r"\*/a-1 stands for several tenants"):
            find_all(_services([]), Rules().rules, "*", ["a-1"], **ABOUT, if_exists=if_exists)


@pytest.mark.parametrize(
    ("hint", "shown"),
    [("create it with `x`", "see `vgpuctl list-disks`"), (None, "see `vgpuctl list-disks`")]
    + [(near, near) for near in ("did you mean a?", "there are a, b")],
)
def test_a_hint_never_says_to_create_what_was_to_be_deleted(hint: str | None, shown: str) -> None:
    def find(_session: Session, _tenant: str, name: str) -> str:
        raise NotFound(f"no {name}", hint=hint)

    with pytest.raises(NotFound) as caught:
        find_all(_services([]), replace(Rules().rules, find=find), "acme", ["b"], **ABOUT, if_exists=False)
    assert caught.value.hint == shown
