# SPDX-License-Identifier: Apache-2.0
"""A dry run refuses in the words of the run; a dry run that succeeds is followed by a run that does.

Each pair is a command on a fleet in the state that it finds; the dry run comes first.
"""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE, operator
from tests.proof.stored_rows import plain

__all__ = ["operator"]

FLEET = (1, "a40+t4+rtx-3090")
CARD = ("--gpu", "passthrough:nvidia-geforce-rtx-3090")
STOP = ("--timeout", "0")
POOL = ("--cluster", "k", "--min", "1", "--max", "2", "--role", "slurm")
_LONG = pytest.mark.long(
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_attach_gpu",
)


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    operator.delete_all_vms()
    for kept in operator.json("list-disks", "--tenant", "acme"):
        operator.does("delete-disk", f"acme/{kept['name']}", "--yes")


def _pair(operator: Operator, *command: str) -> tuple[Any, Any]:
    """How the dry run ends, and how the run: exit code, reference, message and reasons without ages."""
    answers = []
    for more in (("--dry-run",), ()):
        done = operator.run(*command, *more, "--json")
        errors = [json.loads(plain(line))["error"] for line in done.err.splitlines() if line.startswith('{"error"')]
        answers.append((done.code, [(one["reference"], one["message"], one["context"]) for one in errors]))
    return answers[0], answers[1]


def _agree(operator: Operator, code: int, *command: str) -> None:
    tried, done = _pair(operator, *command)
    assert tried == done, command
    assert done[0] == code, (command, done)


@pytest.mark.parametrize("state", ["running", pytest.param("kept", marks=_LONG), pytest.param("released", marks=_LONG)])
def test_attach_gpu(operator: Operator, state: str) -> None:
    operator.does("create-vm", "acme/web", *SIZE, "--gpu", "A40-8Q")
    if state != "running":
        operator.does("stop-vm", "acme/web", *STOP, "--hold", "release" if state == "released" else "keep")
    for limit, what, code in (
        ("framebuffer=9GiB", "memory>=2GiB,series=Q", 9),
        ("framebuffer=9GiB", "T4-2Q", 9),
        ("shares:T4-2Q=0", "T4-2Q", 9),
        ("cards=0", "passthrough:nvidia-geforce-rtx-3090", 9),
        ("vms=9", "A40-12Q", 5),
        ("vms=9", "2*T4-2Q", 2),
        ("framebuffer=64GiB", "memory>=2GiB,series=Q", 0),
    ):
        operator.does("set-quota", "acme", limit)
        try:
            tried, done = _pair(operator, "attach-gpu", "acme/web", what)
        finally:
            operator.does("set-quota", "acme", f"{limit.partition('=')[0]}=none")
        # Without shares a VM takes none from a quota or a GPU: only what cannot be read is refused.
        assert (tried, done[0]) == (done, code if state != "released" or code == 2 else 0), (limit, what)


@pytest.mark.parametrize(
    ("options", "code"),
    [((), 5), pytest.param(("--no-start",), 0, marks=_LONG), pytest.param(("--preempt",), 5, marks=_LONG)],
)
def test_restore_vm_whose_place_is_taken(operator: Operator, options: Sequence[str], code: int) -> None:
    operator.does("create-vm", "acme/web", *SIZE, *CARD)
    operator.does("delete-vm", "acme/web", "--yes", *STOP, "--keep-disk=1h")
    operator.does("create-vm", "acme/other", *SIZE, *CARD)
    _agree(operator, code, "restore-vm", "acme/web", *options)
    assert "delete acme/other" in operator.is_refused("start-vm", "acme/web")["hint"]


@pytest.mark.parametrize(("limit", "code"), [("cards=0", 9), ("vms=0", 9), ("cards=1", 0)])
@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_restore_vm_whose_place_is_taken",
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_attach_gpu",
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
)
def test_restore_vm_under_a_quota(operator: Operator, limit: str, code: int) -> None:
    operator.does("create-vm", "acme/web", *SIZE, *CARD)
    operator.does("delete-vm", "acme/web", "--yes", *STOP, "--keep-disk=1h")
    operator.does("set-quota", "acme", limit)
    try:
        _agree(operator, code, "restore-vm", "acme/web")
    finally:
        operator.does("set-quota", "acme", f"{limit.partition('=')[0]}=none")


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_restore_vm_whose_place_is_taken",
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_start_vms_of_which_the_second_needs_what_the_first_takes",
)
def test_restore_vm_preempts_in_the_dry_run_too(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE, *CARD, "--priority", "900")
    operator.does("delete-vm", "acme/web", "--yes", *STOP, "--keep-disk=1h")
    operator.does("create-vm", "acme/low", *SIZE, *CARD, "--priority", "100", "--preemptible", "stop")
    _agree(operator, 5, "restore-vm", "acme/web")
    operator.does("delete-vm", "acme/web", "--yes", *STOP, "--keep-disk=1h")
    _agree(operator, 0, "restore-vm", "acme/web", "--preempt", "--grace", "0", "--shutdown-timeout", "0")
    assert operator.json("show-vm", "acme/low")["vm"]["state"] == "stopped"


@pytest.mark.parametrize(
    "more", [pytest.param((), marks=_LONG), ("--preempt", "--grace", "0", "--shutdown-timeout", "0")]
)
def test_start_vms_of_which_the_second_needs_what_the_first_takes(operator: Operator, more: Sequence[str]) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", f"acme/{name}", *SIZE, *CARD, "--priority", "900")
        operator.does("stop-vm", f"acme/{name}", *STOP, "--hold", "release")
    operator.does("create-vm", "acme/low", *SIZE, *CARD, "--priority", "100", "--preemptible", "stop")
    _agree(operator, 10, "start-vm", "acme/one", "acme/two", *more)


def test_detach_gpu_of_a_vm_that_waits_and_of_one_that_is_off(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE, "--gpu", "A40-8Q", "--gpu", "T4-2Q")
    _agree(operator, 6, "detach-gpu", "acme/web", "7")
    _agree(operator, 0, "detach-gpu", "acme/web", "0")
    operator.does("stop-vm", "acme/web", *STOP)
    _agree(operator, 0, "detach-gpu", "acme/web", "1")
    _agree(operator, 6, "detach-gpu", "acme/web", "1")


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_detach_gpu_of_a_vm_that_waits_and_of_one_that_is_off",
)
def test_a_dry_run_of_detach_gpu_frees_no_share(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE, *CARD)
    operator.does("stop-vm", "acme/web", *STOP)
    before = operator.json("show-vm", "acme/web")["leases"]
    assert operator.json("detach-gpu", "acme/web", "0", "--dry-run")["state"] == "detached"
    assert operator.json("show-vm", "acme/web")["leases"] == before


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_delete_vm",
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
)
def test_networks(operator: Operator) -> None:
    make = ("create-network", "-t", "acme")
    _agree(operator, 0, *make, "lan", "--cidr", "10.7.0.0/24")
    _agree(operator, 6, *make, "lan2", "--cidr", "10.7.0.0/25")
    _agree(operator, 6, *make, "lan", "--cidr", "10.8.0.0/24")
    operator.does("create-vm", "acme/net", *SIZE[:4], "--network", "lan")
    _agree(operator, 6, "delete-network", "-t", "acme", "lan", "--yes")
    operator.delete_all_vms()
    _agree(operator, 0, "delete-network", "-t", "acme", "lan", "--yes")
    _agree(operator, 6, "delete-network", "-t", "acme", "lan", "--yes")


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_delete_vm",
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
)
def test_disks(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE, "--data-disk", "data,size=32MiB,keep")
    _agree(operator, 6, "delete-disk", "acme/data", "--yes")
    operator.does("delete-vm", "acme/web", "--yes", *STOP)
    _agree(operator, 0, "delete-disk", "acme/data", "--yes")
    _agree(operator, 6, "delete-disk", "acme/data", "--yes")


def test_delete_vm(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE)
    operator.does("create-vm", "acme/web2", *SIZE)
    _agree(operator, 6, "delete-vm", "acme/nobody", "--yes", *STOP)
    _agree(operator, 0, "delete-vm", "acme/web", "--yes", *STOP, "--keep-disk")
    operator.does("create-vm", "acme/web", *SIZE)
    _agree(operator, 6, "delete-vm", "acme/web", "--yes", *STOP, "--keep-disk")
    _agree(operator, 0, "delete-vm", "acme/web*", "--yes", *STOP)


@pytest.mark.parametrize("fault", [pytest.param("libvirtd", marks=_LONG), "sshd"])
def test_a_host_or_a_libvirt_that_does_not_answer(operator: Operator, fleet: lab.LabFolder, fault: str) -> None:
    at = ("--host", "sim-001")
    operator.does("create-tenant", "gone")
    operator.does("create-network", "-t", "gone", "lan", "--cidr", "10.7.0.0/24", *at)
    operator.does("create-network", "-t", "acme", "lan", "--cidr", "10.8.0.0/24", *at)
    operator.does("create-vm", "acme/web", *SIZE, "--gpu", "A40-8Q")
    operator.does("create-vm", "acme/off", *SIZE)
    operator.does("stop-vm", "acme/off", *STOP)
    operator.does("create-vm", "gone/one", *SIZE, *at)
    lab.faults.begin("sim-001", fault, folder=fleet)
    try:
        drain = ("drain-host", "sim-001", "--reason", "x", "--yes", "--stop", "--shutdown-timeout", "0")
        _agree(operator, 10, *drain)
        left = operator.is_refused(*drain)
        assert "add --stop" not in left["hint"]
        assert [
            line.count("libvirt on sim-001" if fault == "libvirtd" else "no connection") for line in left["context"]
        ] == [2, 1]
        operator.does("uncordon-host", "sim-001")
        resize = ("resize-vm", "acme/web", "--memory", "128MiB", "--restart", "--shutdown-timeout", "0")
        said = operator.run(*resize).err
        assert "stays stopped" not in said
        assert ("whether it still runs on sim-001 is not known" in said) == (fault == "libvirtd")
        for command in (
            ("stop-vm", "acme/web", *STOP),
            resize,
            ("delete-vm", "acme/web", "--yes", *STOP),
            ("delete-vm", "acme/off", "--yes", *STOP, "--keep-disk=1h"),
            ("offboard-tenant", "gone", "--yes", *STOP),
            ("delete-network", "-t", "acme", "lan", "--yes"),
        ):
            _agree(operator, 4, *command)
        assert operator.is_refused("start-vm", "acme/web")["message"] == "acme/web: it is deleting"
        tried, done = (operator.ends(10, "repair", *more) for more in (("--dry-run",), ()))
        assert tried == done
        assert [one["outcome"].partition(":")[0] for one in done] == ["failed"] * 5, "3 VMs and 2 networks"
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    operator.does("repair")
    operator.does("offboard-tenant", "gone", "--yes", *STOP)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("vms=3",), 0),
        (("shares:NoSuch-1Q=3",), 2),
        (("vms=2", "--guaranteed", "vms=3"), 2),
        (("--reclaim", "stop"), 0),
        (("vms=none", "--reclaim", "never"), 0),
    ],
)
def test_set_quota(operator: Operator, arguments: Sequence[str], code: int) -> None:
    _agree(operator, code, "set-quota", "acme", *arguments)


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_delete_vm",
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
)
def test_node_pools(operator: Operator) -> None:
    make = ("create-node-pool", "acme/gpu", *POOL, *SIZE[:4])
    operator.does("set-quota", "acme", "vms=0")
    _agree(operator, 9, *make)
    operator.does("set-quota", "acme", "vms=none")
    operator.does("create-vm", "acme/gpu-001", *SIZE)
    _agree(operator, 6, *make)
    operator.delete_all_vms()
    _agree(operator, 0, *make)
    _agree(operator, 0, *make)
    _agree(operator, 6, *make, "--vcpus", "2")
    for size, code in (("3", 2), ("2", 0), ("2", 0), ("1", 0)):
        _agree(operator, code, "scale-node-pool", "acme/gpu", size)
    operator.does("delete-node-pool", "acme/gpu", "--yes", "--drained", *STOP)


def test_restrictions(operator: Operator) -> None:
    gpu = "0000:41:00.0"
    because = ("--reason", "a test")
    for command in (
        ("cordon-host", "sim-001", *because),
        ("cordon-host", "sim-001", *because),
        ("create-vm", "acme/none", *SIZE),
        ("uncordon-host", "sim-001"),
        ("quarantine-gpu", "sim-001", gpu, *because),
        ("quarantine-gpu", "sim-001", "0000:ff:00.0", *because),
        ("unquarantine-gpu", "sim-001", gpu, *because),
        ("unquarantine-gpu", "sim-001", gpu, *because),
        ("unquarantine-gpu", "sim-001", "0000:ff:00.0", *because),
    ):
        tried, done = _pair(operator, *command)
        assert tried == done, command


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_start_vms_of_which_the_second_needs_what_the_first_takes",
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_restrictions",
)
def test_uncordon_host_starts_the_vms_of_a_drain_in_the_dry_run_too(operator: Operator) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", f"acme/{name}", *SIZE, "--gpu", "A40-8Q")
    operator.run("drain-host", "sim-001", "--reason", "a test", "--stop", "--yes", "--shutdown-timeout", "0")
    planned = operator.json("uncordon-host", "sim-001", "--start", "--dry-run")
    assert planned["started"] == {"acme/one": "running", "acme/two": "running"}
    assert {one["vm"]["state"] for one in operator.json("list-vms")} == {"stopped"}
    assert operator.json("uncordon-host", "sim-001", "--start")["started"] == planned["started"]


@pytest.mark.long(
    "tests/e2e/operate/test_dry_runs_end_as_runs.py::test_delete_vm",
    "tests/unit/cli/frame/test_dry_run.py::test_a_dry_run_is_the_run_or_has_a_reason_for_code_of_its_own",
)
def test_offboard_tenant(operator: Operator) -> None:
    operator.does("create-tenant", "gone")
    operator.does("create-vm", "gone/web", *SIZE, "--gpu", "A40-8Q", "--data-disk", "data,size=32MiB,keep")
    command = ("offboard-tenant", "gone", "--yes", *STOP)
    _agree(operator, 6, *command)
    _agree(operator, 0, *command, "--delete-disks")
    _agree(operator, 6, "offboard-tenant", "nobody", "--yes")


@pytest.mark.parametrize("more", [(), pytest.param(("--gang",), marks=_LONG), pytest.param(("--queue",), marks=_LONG)])
def test_create_vm_beside_a_reservation_and_a_queue(operator: Operator, more: Sequence[str]) -> None:
    card = "passthrough:nvidia-geforce-rtx-3090"
    begin, end = (time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() + hours * 3600)) for hours in (1, 9))
    _agree(operator, 0, "reserve", "acme/r", "--gpu", card, "--from", begin, "--until", end)
    _agree(operator, 5, "reserve", "acme/r2", "--gpu", card, "--from", begin, "--until", end)
    _agree(operator, 0 if more == ("--queue",) else 5, "create-vm", "acme/web", *SIZE, "--gpu", card, *more)
    _agree(operator, 0, "create-vm", "acme/b", *SIZE, "--gpu", "A40-8Q", "--count", "2", *more)
    for one in operator.json("list-queue")["queue"]:
        operator.does("leave-queue", f"acme/{one['entry']['request']['name']}", "--yes")
    for one in operator.json("list-reservations"):
        operator.does("cancel-reservation", f"acme/{one['name']}", "--yes")
