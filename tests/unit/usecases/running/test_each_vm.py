# SPDX-License-Identifier: Apache-2.0
"""The same work on several VMs: a silent host is waited for once."""

from typing import Any

import pytest

from tests.integration.store.samples import vm
from vgpuctl.errors import CommandFailed, HostUnreachable, VgpuctlError
from vgpuctl.usecases.running.each_vm import on_each_vm
from vgpuctl.usecases.running.services import Openers, Services

VMS = [vm(f"web-{number}", host="gpu1") for number in range(4)]


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (HostUnreachable("gpu1: no connection: timed out"), 1),
        (HostUnreachable("gpu2: no connection: timed out"), 4),
        (CommandFailed("gpu1: the program failed"), 4),
    ],
    ids=["no answer", "another host", "an answer"],
)
def test_a_host_without_an_answer_is_not_waited_for_again(error: VgpuctlError, asked: int) -> None:
    unused: Any = lambda *_: None  # noqa: E731
    services = Services(
        Openers(inventory=unused, store=unused, store_place=unused, session=unused), say=lambda _line: None
    )
    begun = []

    def work(one: Any) -> None:
        services.host(one.host)
        begun.append(one)
        raise error

    done = on_each_vm(services, VMS, work)
    assert len(begun) == asked
    assert [(type(one.error), str(one.error)) for one in done] == [(type(error), str(error))] * 4
    assert ("not asked again" in str(done[-1].error and done[-1].error.context)) == (asked == 1)
    services.host("gpu1")  # What comes after these VMs asks again.
