# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl controller` on the host with a real kernel and libvirtd: the death of a QEMU is seen."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.operate.test_watched_hosts import controller, soon, vm
from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = [
    pytest.mark.kernel_lab,
    pytest.mark.long("tests/e2e/operate/test_watched_hosts.py::test_a_vm_that_ends_is_seen"),
]

ACME = ("--tenant", "acme")
KILL = "pid=$(cat /run/libvirt/qemu/acme.web.pid) && kill -9 $pid && echo $pid"


@pytest.fixture(scope="module")
def watched(operator: Operator) -> Iterator[Operator]:
    """An operator with a VM that runs, while a controller watches its host."""
    operator.does("create-tenant", "acme")
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB", "--base-image", "idle")
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", *size)
    try:
        with controller(operator, ("-m", "vgpuctl")):
            soon(lambda: state(operator) == ("running", "held"))
            yield operator
    finally:
        operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


def state(operator: Operator) -> tuple[str, str]:
    """The VM and its share as the store has them; no host is contacted."""
    found = vm(operator)
    return found["observed"], found["shares"][0]["state"]


def events(operator: Operator, kind: str) -> list[dict[str, Any]]:
    return [one for one in operator.json("list-events", "--limit", "1000") if one["kind"] == kind]


def test_a_qemu_that_is_killed_is_seen(watched: Operator, witness: Witness) -> None:
    assert int(witness.run(KILL)) > 1
    soon(lambda: vm(watched)["observed"] == "shut-off")
    soon(lambda: state(watched) == ("shut-off", "free"))
    seen = [one for one in events(watched, "vm-observed") if one["after"]["state"] == "shut-off"]
    assert [(one["subject"], one["actor"]["command"]) for one in seen] == [("acme/web", "controller")]
    assert vm(watched)["declared"] == "running"
    assert events(watched, "vm-started") == [], "its policy is never"
    watched.does("start-vm", "web", *ACME)
    soon(lambda: state(watched) == ("running", "held"))
    assert "acme.web" in witness.run("virsh -q list --name")
