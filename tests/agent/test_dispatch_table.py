# SPDX-License-Identifier: Apache-2.0
"""Each step of the wire is taken by a function made for it, and each question fills fields that the reply has."""

import typing
from importlib import import_module

import pytest

from vgpuctl.agent import dispatch
from vgpuctl.agent.wire.envelope import CALLS, Reply, Request
from vgpuctl.agent.wire.steps import Step


def _steps(union: object) -> typing.Iterator[type]:
    for one in typing.get_args(union):
        if isinstance(one, type):
            yield one
        else:
            yield from _steps(one)


@pytest.mark.parametrize("step", list(_steps(Step)), ids=lambda step: step.__name__)
def test_a_step_is_taken_by_a_function_of_its_kind(step: type) -> None:
    module, _, name = dispatch._TAKERS[step].partition(".")
    taker = getattr(import_module(f"vgpuctl.agent.changes.{module}"), name)
    hint = typing.get_type_hints(taker)["step"]
    assert step in (hint, *_steps(hint))


def test_every_call_is_answered() -> None:
    answered = {*dispatch._ANSWERS, *dispatch._INSTALLED, "apply", "ping"}
    assert answered == set(CALLS)
    fields = {field for fields in dispatch._ANSWERS.values() for field in fields}
    assert fields == set(dispatch._READERS) <= set(typing.get_type_hints(Reply))
    assert set(dispatch._INSTALLED) <= set(typing.get_type_hints(Request))
