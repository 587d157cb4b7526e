# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl controller` keeps the store true: what happens on simulated hosts is observed."""

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import IO, Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.store.controllers import Controller
from vgpuctl.store.store import open_store
from vgpuctl.usecases.operate.division import owner

HOST, OTHER = "sim-001", "sim-002"
HOSTS = {f"sim-{number:03}" for number in range(1, 5)}
ACME = ("--tenant", "acme")
LIMIT_S = 300.0


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "default")
    fleet_operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", HOST, *size)
    yield fleet_operator
    fleet_operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


QUICK = ("-m", "tests.e2e.quick_watch")


@contextmanager
def controller(operator: Operator, program: Sequence[str] = QUICK) -> Iterator["subprocess.Popen[str]"]:
    """A controller while the block runs. An error in it has the last events and the controller's log as notes."""
    with (
        tempfile.TemporaryFile("w+") as log,
        operator.start("-vv", "controller", "--interval", "1", program=program, stderr=log) as process,
    ):
        try:
            yield process
        except BaseException as error:
            error.add_note(operator.does("list-events", "--limit", "40").out)
            error.add_note(_ended(process, log)[-20_000:])
            raise
        err = _ended(process, log)
        assert process.returncode in (0, -9), err
        assert "Traceback" not in err


def _ended(process: "subprocess.Popen[str]", log: IO[str]) -> str:
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    log.seek(0)
    return log.read()


@pytest.fixture(scope="module")
def watched(operator: Operator) -> Iterator[Operator]:
    """The operator, while a controller watches the hosts."""
    with controller(operator):
        soon(lambda: host(operator, HOST)["read_at"] is not None)
        yield operator


def soon(is_so: Callable[[], object]) -> None:
    """Wait until something is so. It is asked less and less often: mostly a command is run for it."""
    give_up = time.monotonic() + LIMIT_S
    pause_s = 0.1
    while not is_so():
        assert time.monotonic() < give_up, f"not within {LIMIT_S:g} s"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 1.0)


def host(operator: Operator, name: str) -> dict[str, Any]:
    """The host's GPU as the store has it; no host is contacted."""
    (gpu, *_) = [one for one in operator.json("list-gpus") if one["host"] == name]
    return {"read_at": gpu["observation"]["at"], **gpu["observation"], "libvirt": gpu["libvirt_problem"]}


def vm(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = operator.json("list-vms")
    return found


def kinds(operator: Operator) -> list[str]:
    return [one["kind"] for one in operator.json("list-events", "--limit", "1000")]


@contextmanager
def failing(fleet: lab.LabFolder, name: str, kind: str) -> Iterator[None]:
    lab.faults.begin(name, kind, folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(name, folder=fleet)


def test_a_vm_that_ends_is_told_by_libvirt_before_anybody_asks(operator: Operator) -> None:
    """First in this file: no other controller asks meanwhile."""
    with controller(replace(operator, variables={"VGPUCTL_TESTS_ASK_EVERY_S": "86400"})):
        soon(lambda: host(operator, HOST)["read_at"] is not None and vm(operator)["observed"] == "running")
        with libvirt_of(operator.inventory, HOST) as there:
            there.connection.lookupByName("acme.web").destroy()
        soon(lambda: vm(operator)["observed"] == "shut-off")
        operator.does("start-vm", "web", *ACME)


def test_a_vm_that_ends_is_seen(watched: Operator) -> None:
    with libvirt_of(watched.inventory, HOST) as there:
        there.connection.lookupByName("acme.web").destroy()
    soon(lambda: vm(watched)["observed"] == "shut-off")
    assert vm(watched)["declared"] == "running"
    watched.does("start-vm", "web", *ACME)
    soon(lambda: vm(watched)["shares"][0]["state"] == "held")


def test_a_vm_that_is_undefined_by_hand_is_absent(watched: Operator) -> None:
    with libvirt_of(watched.inventory, HOST) as there:
        domain = there.connection.lookupByName("acme.web")
        domain.destroy()
        domain.undefine()
    soon(lambda: vm(watched)["observed"] == "absent")
    watched.does("start-vm", "web", *ACME)
    soon(lambda: vm(watched)["observed"] == "running")


def test_the_traffic_of_a_vm_is_counted(watched: Operator) -> None:
    def counted() -> list[dict[str, Any]]:
        return [one for one in watched.json("show-usage", "--traffic", *ACME)["traffic"] if one["received_bytes"] > 0]

    soon(counted)
    (line,) = counted()
    assert (line["tenant"], line["kind"], line["name"]) == ("acme", "vm", "web")
    assert line["received_packets"] > 0 and line["first_at"] <= line["last_at"]
    assert "acme,vm,web," in watched.does("report", "--csv", "traffic").out
    assert "web" in watched.does("show-usage", "--traffic").out
    assert watched.is_refused("show-usage", "--traffic", "--intervals")["reference"] == "usage"


@pytest.mark.long(
    "tests/unit/usecases/operate/test_watch_hosts.py::test_a_host_is_read_once_while_only_its_libvirt_is_away",
    "tests/e2e/host/test_observed_states.py::test_a_dead_libvirtd_is_shown_of_hosts_and_gpus",
)
def test_libvirtd_that_ends_and_comes_back_is_seen(watched: Operator, fleet: lab.LabFolder) -> None:
    def problems() -> list[Any]:
        told = watched.json("list-events", "--limit", "1000")
        return [one["after"] for one in told if (one["kind"], one["host"]) == ("libvirt-observed", HOST)]

    before = len(problems())
    with failing(fleet, HOST, "libvirtd"):
        soon(lambda: vm(watched)["unknown_since"] is not None)
        assert vm(watched)["observed"] == "running", "the last observation stays"
        assert host(watched, HOST)["unknown_since"] is None, "the agent answers"
        soon(lambda: host(watched, HOST)["libvirt"] is not None)
    soon(lambda: vm(watched)["unknown_since"] is None)
    seen = [after["state"] for after in problems()[before:]]
    assert seen and len(seen) % 2 == 0 and all(one != following for one, following in pairwise(seen)), seen


@pytest.mark.long(
    "tests/unit/usecases/operate/test_watch_hosts.py::"
    "test_a_sick_gpu_is_in_quarantine_also_where_the_inventory_cannot_be_read",
    "tests/e2e/host/test_observed_states.py::test_a_card_off_the_bus_is_observed",
)
def test_a_card_off_the_bus_is_seen(watched: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, OTHER, "fallen"):
        soon(lambda: host(watched, OTHER)["state"] != "present")
        soon(lambda: "gpu-quarantined" in kinds(watched))
    soon(lambda: host(watched, OTHER)["state"] == "present")


def test_a_host_that_hangs_delays_no_other(watched: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, OTHER, "network"):
        soon(lambda: host(watched, OTHER)["unknown_since"] is not None)
        read_at = host(watched, HOST)["at"]
        soon(lambda: host(watched, HOST)["at"] > read_at)
    soon(lambda: host(watched, OTHER)["unknown_since"] is None)


@pytest.mark.long(
    "tests/e2e/operate/test_watched_layout.py::test_after_a_reboot_layout_then_share_then_vm_come_back",
    "tests/e2e/operate/test_restart_policy.py::test_after_a_reboot_shares_and_vms_come_back_in_order_of_priority",
)
def test_a_power_cut_and_the_reboot_are_seen(watched: Operator, fleet: lab.LabFolder) -> None:
    before = kinds(watched)
    with failing(fleet, HOST, "power-off"):
        soon(lambda: host(watched, HOST)["unknown_since"] is not None)
        assert vm(watched)["unknown_since"] is not None
    soon(lambda: vm(watched)["observed"] == "shut-off")
    soon(lambda: kinds(watched).count("host-rebooted") > before.count("host-rebooted"))
    soon(lambda: vm(watched)["shares"][0]["state"] == "free")  # The reboot took it, and the controller made it again.
    watched.does("start-vm", "web", *ACME)


@pytest.mark.long(
    "tests/e2e/operate/test_list_controllers.py::test_controllers_are_listed_with_their_hosts_and_whether_they_live",
    "tests/integration/store/test_store_controllers.py::test_a_killed_process_is_dead_at_once",
)
def test_the_hosts_of_a_killed_controller_are_taken_over(watched: Operator) -> None:
    has_taken = False
    while not has_taken:  # by the hash of its random name it may get no host
        with controller(watched) as second:
            soon(lambda: is_divided(watched))
            has_taken = bool(next(one.hosts for one in controllers(watched) if one.pid == second.pid))
            second.kill()
            second.wait()
            for name in HOSTS:
                at = host(watched, name)["at"]
                soon(lambda name=name, at=at: host(watched, name)["at"] > at)  # type: ignore[misc]


def controllers(operator: Operator) -> list[Controller]:
    with open_store(operator.database) as store, store.reading() as session:
        return session.controllers()


def is_divided(operator: Operator) -> bool:
    """True once each of two controllers has the hosts that it keeps: before, one that began alone has all of them."""
    both = controllers(operator)
    return len(both) == 2 and all(one.hosts == {host for host in HOSTS if owner(host, both) == one.id} for one in both)
