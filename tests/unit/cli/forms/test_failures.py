# SPDX-License-Identifier: Apache-2.0
"""The end of a run over many hosts: failures that are alike are one line with an example."""

import pytest

from vgpuctl.cli.forms.services import report_failures, report_hosts
from vgpuctl.errors import HostError, HostUnreachable, InventoryError, PartialFailure, StateError, VgpuctlError


def refused(name: str, port: int) -> HostUnreachable:
    return HostUnreachable(f"{name}: connect to host 192.0.2.{port} port {port}: refused", hint=f"ping {name}")


def lines_of(failures: list[tuple[str, VgpuctlError]], fine: int = 0) -> tuple[str, ...]:
    with pytest.raises(VgpuctlError) as caught:
        report_hosts(failures, fine=fine, what="did not answer")
    return tuple(caught.value.context)


def test_forty_equal_sentences_are_one() -> None:
    failures: list[tuple[str, VgpuctlError]] = [(f"gpu{at}", refused(f"gpu{at}", at)) for at in range(40)]
    failures.insert(7, ("gpu99", HostError("the disk is full")))
    assert lines_of(failures) == (
        "40 hosts (gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7 …), for example"
        " gpu0: connect to host 192.0.2.0 port 0: refused (hint: ping gpu0)",
        "gpu99: the disk is full",
    )


@pytest.mark.parametrize("number", [2, 3])
def test_few_have_a_line_each(number: int) -> None:
    failures: list[tuple[str, VgpuctlError]] = [(f"gpu{at}", refused(f"gpu{at}", at)) for at in range(number)]
    assert len(lines_of(failures, fine=3)) == number


def test_a_line_says_why_where_the_sentence_alone_does_not() -> None:
    reasons = ["no room for 24 GiB"] * 5 + ["no network for moves"]
    failures: list[tuple[str, VgpuctlError]] = [
        (f"a/web-{at}", StateError(f"a/web-{at}: cannot move", context=[why])) for at, why in enumerate(reasons)
    ]
    assert lines_of(failures) == (
        "5 hosts (a/web-0, a/web-1, a/web-2, a/web-3, a/web-4), for example a/web-0: cannot move: no room for 24 GiB",
        "a/web-5: cannot move: no network for moves",
    )


def test_the_same_sentence_with_another_hint_stands_apart() -> None:
    failures: list[tuple[str, VgpuctlError]] = [(f"gpu{at}", HostError("full", hint="a")) for at in range(5)]
    failures += [("gpu8", HostError("full", hint="b"))]
    assert lines_of(failures)[1] == "gpu8: full (hint: b)"


@pytest.mark.parametrize(
    ("errors", "answered", "kind", "said"),
    [
        ([InventoryError("a"), InventoryError("b")], 0, InventoryError, "2 of 2 hosts are wrong in the inventory"),
        ([InventoryError("a")], 1, PartialFailure, "1 of 2 hosts are wrong in the inventory"),
        ([InventoryError("a"), HostError("b")], 0, PartialFailure, "2 of 2 hosts did not answer"),
        ([HostError("a"), HostUnreachable("b")], 0, HostError, "2 of 2 hosts did not answer"),
    ],
)
def test_a_mistake_in_the_inventory_is_not_a_silent_host(
    errors: list[VgpuctlError], answered: int, kind: type[VgpuctlError], said: str
) -> None:
    with pytest.raises(VgpuctlError) as caught:
        report_failures([(f"gpu{at}", error) for at, error in enumerate(errors)], answered=answered)
    assert (type(caught.value), caught.value.message) == (kind, said)
