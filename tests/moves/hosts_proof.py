# SPDX-License-Identifier: Apache-2.0
"""Running VMs change their host with their vGPU, by real QEMU and real libvirt; and how that fails.

`make test-moves` runs it; it takes minutes, so it is not among the tests of every change. ROUNDS=10 repeats each case.
The guest counts, sums up a block of its memory, and reads registers of its vGPUs: after a move all three go on.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import libvirt
import pytest

from tests.moves.hosts import LIVE, Device, Guest, MoveHost, Way, make_device, move, qemu_status, wait_for

pytestmark = pytest.mark.timeout(1800)
ROUNDS = int(os.environ.get("ROUNDS") or 1)
# The most that QEMU takes.
MOST_DOWNTIME_MS = 2_000_000
TYPES = {Way.PROFILE: "A40-8Q", Way.MDEV_VF: "A40-8Q", Way.MDEV_PF: "T4-4Q", Way.INTEL: ""}
WAYS = (Way.PROFILE, Way.MDEV_VF, Way.MDEV_PF)

Make = Callable[..., Device]
Start = Callable[..., Guest]


@pytest.fixture(autouse=True, params=range(1, ROUNDS + 1), ids="round{}".format)
def round_number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def make(hosts: tuple[MoveHost, MoveHost]) -> Iterator[Make]:
    """Makes devices, which go with the domains and faults of both hosts."""
    made: list[Device] = []

    def make(host: MoveHost, way: Way, type_name: str = "", number: int = 1) -> Device:
        made.append(make_device(host, way, type_name or TYPES[way], number))
        return made[-1]

    yield make
    for host in hosts:
        host.forget_domains()
        host.end_faults()
    for device in made:
        device.delete()


@pytest.fixture
def start(make: Make) -> Start:
    """Starts a guest with devices, and waits until it counts."""

    def start(*devices: Device) -> Guest:
        guest = Guest("mover", str(uuid4()), devices)
        guest.start()
        # A second line: the first says what the registers held before the guest wrote the count.
        guest.says(devices[0].host, after=1)
        return guest

    return start


def marks(devices: tuple[Device, ...], guest: Guest) -> list[bool]:
    """Of each vGPU, whether it has what the guest wrote."""
    words = guest.says(devices[0].host, after=guest.says(devices[0].host).count)
    assert len(words.gpus) == len(devices)
    return [mark >> 16 == 0xC0DE and count == words.count - 1 for mark, count in words.gpus]


def refusal(guest: Guest, *devices: Device) -> tuple[int, str]:
    """The code and the text of libvirt's refusal to move."""
    with pytest.raises(libvirt.libvirtError) as caught:
        move(guest, devices)
    return caught.value.get_error_code(), caught.value.get_error_message()


def runs_on(guest: Guest, b: MoveHost, *, resets: str, reason: int) -> None:
    """Check that the guest runs on its source, with what it wrote unless its vGPU was reset, and not on the target."""
    (device,) = guest.devices
    assert device.host.domain("mover").state() == [libvirt.VIR_DOMAIN_RUNNING, reason]
    assert (marks(guest.devices, guest), device.state["resets"]) == ([resets == "1"], resets)
    assert not b.has_domain("mover")
    wait_for(lambda: {one["in_use"] for one in b.vgpus()} == {"0"}, "the target's vGPU is free")


def goes_along(guest: Guest, *devices: Device) -> libvirt.virDomain:
    """Move a guest, and check that all of it came along."""
    source, target = guest.devices[0].host, devices[0].host
    before, states = guest.says(source), [one.state["state"] for one in guest.devices]
    domain = move(guest, devices)
    after = guest.says(target, after=before.count)
    assert (after.memory, [mark for mark, _ in after.gpus]) == (before.memory, [mark for mark, _ in before.gpus])
    assert marks(devices, guest) == [True] * len(devices)
    assert [(one.state["state"], one.state["generation"], one.state["resets"]) for one in devices] == [
        (state, "1", "1") for state in states
    ]
    assert (domain.isActive(), domain.isPersistent(), source.has_domain("mover")) == (1, 1, False)
    assert [one["in_use"] for one in source.vgpus()] == ["0"] * len(devices)
    for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        xml = domain.XMLDesc(flags)
        assert all(one.source_xml in xml for one in devices)
        assert f">{target.name}</proof:host>" in xml
    return domain


@pytest.mark.parametrize("way", WAYS)
def test_a_vgpu_moves_with_its_vm(way: Way, a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    domain = goes_along(start(make(a, way)), make(b, way, number=2))
    assert domain.state() == [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]
    told = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    assert told["operation"] == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN
    assert {"time_elapsed", "downtime", "data_processed", "memory_bps"} <= set(told)


def test_two_vgpus_of_one_vm_move(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    guest = start(make(a, Way.MDEV_VF), make(a, Way.PROFILE))
    goes_along(guest, make(b, Way.MDEV_VF), make(b, Way.PROFILE, number=2))


def test_a_large_state_that_changes_moves(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    a.fault(Way.MDEV_PF, "move-state", 64)
    a.fault(Way.MDEV_PF, "move-dirty", 1)
    domain = goes_along(start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF))
    assert domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)["data_processed"] > 64 << 20
    assert "loaded" in b.kernel_log()[-1]


def test_a_late_refusal_is_a_success_without_the_gpu(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    """Libvirt and QEMU call it a success; registers, kernel log and QEMU's log alone tell."""
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF, "T4-2Q")
    before, state = guest.says(a), guest.devices[0].state["state"]
    domain = move(guest, [there])
    assert domain.state() == [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]
    assert not a.has_domain("mover")
    after = guest.says(b, after=before.count)
    assert (after.memory, [mark for mark, _ in after.gpus]) == (before.memory, [0])
    assert there.state["state"] != state
    assert (there.state["generation"], there.state["resets"]) == ("0", "2")
    assert "NVRM: vGPU migration: source type 0x1eb8130e, destination 0x1eb8130d" in b.kernel_log()[-1]
    assert "Resetting device" in b.run("cat /var/log/libvirt/qemu/mover.log")


def test_an_early_refusal_leaves_the_vm_on_its_source(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF, "T4-2Q")
    b.fault(Way.MDEV_PF, "move-checked-early", 1)
    code, text = refusal(guest, there)
    assert code == libvirt.VIR_ERR_OPERATION_FAILED
    assert "load of migration failed: Invalid argument" in text
    assert "NVRM: vGPU migration: source type" in b.kernel_log()[-1]
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED)


@pytest.mark.parametrize("precopy", [True, False])
def test_a_state_that_cannot_be_saved(a: MoveHost, b: MoveHost, make: Make, start: Start, *, precopy: bool) -> None:
    """With PRE_COPY the failed move costs the tenant the vGPU's state: QEMU resets the vGPU of the source."""
    without_precopy((a, b), is_so=not precopy)
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    a.fault(Way.MDEV_PF, "move-refused", 1)
    code, text = refusal(guest, there)
    assert code == libvirt.VIR_ERR_OPERATION_FAILED
    assert ("Failed setting device state to STOP_COPY. Recover state is ERROR. Resetting device" in text) is precopy
    runs_on(guest, b, resets="2" if precopy else "1", reason=libvirt.VIR_DOMAIN_RUNNING_UNPAUSED)


@pytest.mark.parametrize("precopy", [True, False])
def test_a_state_that_cannot_be_read(a: MoveHost, b: MoveHost, make: Make, start: Start, *, precopy: bool) -> None:
    without_precopy((a, b), is_so=not precopy)
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    a.fault(Way.MDEV_PF, "move-read-error", 100_000)
    code, text = refusal(guest, there)
    assert code == libvirt.VIR_ERR_OPERATION_FAILED
    assert "Input/output error" in text
    runs_on(
        guest, b, resets="1",
        reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED if precopy else libvirt.VIR_DOMAIN_RUNNING_UNPAUSED,
    )  # fmt: skip


def test_a_source_without_precopy_and_a_target_with_it_never_end(
    a: MoveHost, b: MoveHost, make: Make, start: Start
) -> None:
    """The target's QEMU waits for data of its vGPU from while the VM runs (switchover-ack); the source has none."""
    without_precopy((a,), is_so=True)
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    goes_on_until_aborted(a, lambda: move(guest, [there]))
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED)


def goes_on_until_aborted(a: MoveHost, call: Callable[[], object]) -> None:
    """Check that a call sends memory again and again, with nothing left of it, until its job is aborted."""
    codes: list[int] = []

    def run() -> None:
        try:
            call()
        except libvirt.libvirtError as error:
            codes.append(error.get_error_code())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(
            lambda: a.domain("mover").jobStats().get("memory_iteration", 0) > 500, "memory is sent again and again"
        )
        told = a.domain("mover").jobStats()
        assert (told["data_remaining"], told["type"]) == (0, libvirt.VIR_DOMAIN_JOB_UNBOUNDED)
    finally:
        a.domain("mover").abortJob()
        thread.join()
    assert codes == [libvirt.VIR_ERR_OPERATION_ABORTED]


def without_precopy(hosts: Sequence[MoveHost], *, is_so: bool) -> None:
    """Whether the vGPUs of VMs that start now are without PRE_COPY."""
    for host in hosts:
        host.fault(Way.MDEV_PF, "move-no-precopy", int(is_so))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("move-unsupported", "VFIO migration is not supported in kernel"),
        ("move-untracked", "VFIO device doesn't support device and IOMMU dirty tracking"),
    ],
    ids=["unsupported", "untracked"],
)
def test_a_vgpu_that_cannot_be_moved(fault: str, text: str, a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    a.fault(Way.MDEV_PF, fault, 1)
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    said = f"Requested operation is not valid: cannot migrate domain: {guest.devices[0].uuid}: {text}"
    assert refusal(guest, there) == (libvirt.VIR_ERR_OPERATION_INVALID, said)
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED)


def test_an_intel_vf_is_blocked(a: MoveHost, b: MoveHost, make: Make) -> None:
    guest = Guest("mover", str(uuid4()), (make(a, Way.INTEL),))
    guest.start()
    guest.says(a)
    code, text = refusal(guest, make(b, Way.INTEL, number=2))
    assert code == libvirt.VIR_ERR_OPERATION_INVALID
    assert text.endswith("0000:04:00.1: VFIO device doesn't support device and IOMMU dirty tracking")
    assert (a.domain("mover").isActive(), b.has_domain("mover")) == (1, False)


def test_a_target_device_that_is_not_there(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    missing = str(uuid4())
    text = f"device not found: mediated device '{missing}' not found"
    assert refusal(guest, replace(there, uuid=missing)) == (libvirt.VIR_ERR_DEVICE_MISSING, text)
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED)


@pytest.mark.parametrize("way", WAYS)
def test_a_suspended_vm_resumes_on_another_vgpu(way: Way, a: MoveHost, make: Make, start: Start) -> None:
    guest, there = start(make(a, way)), make(a, way, number=2)
    domain = a.domain("mover")
    before, state = guest.says(a), guest.devices[0].state["state"]
    # QEMU sends the vGPU's state once it believes that this takes less; with its own 300 ms a save may never end.
    domain.migrateSetMaxDowntime(MOST_DOWNTIME_MS)
    domain.managedSave()
    assert domain.hasManagedSaveImage() == 1
    assert {one["in_use"] for one in a.vgpus()} == {"0"}
    xml = guest.there(domain, [there], saved=True)
    domain.managedSaveDefineXML(xml)
    domain.create()
    assert domain.state() == [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_RESTORED]
    assert domain.hasManagedSaveImage() == 0
    after = guest.says(a, after=before.count)
    assert (after.memory, [mark for mark, _ in after.gpus]) == (before.memory, [mark for mark, _ in before.gpus])
    assert (there.state["state"], there.state["generation"]) == (state, "1")


def test_a_save_with_qemus_own_limit_of_downtime_never_ends(a: MoveHost, make: Make, start: Start) -> None:
    guest = start(make(a, Way.MDEV_PF))
    a.fault(Way.MDEV_PF, "move-state", 64)
    goes_on_until_aborted(a, a.domain("mover").managedSave)
    assert a.domain("mover").state() == [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_SAVE_CANCELED]
    assert a.domain("mover").hasManagedSaveImage() == 0
    assert marks(guest.devices, guest) == [True]


# A client of its own, so that it can be killed. At `switchover` it stops when the VM has stopped on its source.
CLIENT = """
import os, signal, sys, threading, libvirt
here, there, xml, address, at = sys.argv[1:6]
libvirt.virEventRegisterDefaultImpl()
source, target = libvirt.open(here), libvirt.open(there)
def on_event(connection, domain, event, detail, opaque):
    if (event, detail) == (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED):
        os.kill(os.getpid(), signal.SIGSTOP)
def turn():
    while True:
        libvirt.virEventRunDefaultImpl()
if at == "switchover":
    source.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, on_event, None)
threading.Thread(target=turn, daemon=True).start()
parameters = {"migrate_uri": "tcp://" + address, "destination_xml": xml, "persistent_xml": xml}
source.lookupByName("mover").migrate3(target, parameters, int(sys.argv[6]))
"""


@contextmanager
def moved_by_a_process(guest: Guest, there: Device, at: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Move a guest by a process, which is killed at the end of the block."""
    a, b = guest.devices[0].host, there.host
    xml = guest.there(a.domain("mover"), [there])
    command = [sys.executable, "-c", CLIENT, a.uri, b.uri, xml, b.record.network_address, at, str(LIVE)]
    client = subprocess.Popen(command)
    try:
        yield client
    finally:
        client.kill()
        client.wait()


def test_a_client_killed_while_the_state_is_sent(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    a.fault(Way.MDEV_PF, "move-state", 64)
    a.fault(Way.MDEV_PF, "move-bandwidth", 1)
    with moved_by_a_process(guest, there, "transfer"):
        wait_for(lambda: a.domain("mover").jobStats().get("data_processed", 0) > 0, "the state is sent")
        assert b.domain("mover").state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
    wait_for(lambda: not b.has_domain("mover"), "the target's domain goes with the client")
    wait_for(lambda: not any(a.domain("mover").jobInfo()), "the source's job goes with the client")
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_BOOTED)


def test_a_client_killed_after_the_state_was_sent(a: MoveHost, b: MoveHost, make: Make, start: Start) -> None:
    """The VM runs nowhere: its source is paused as if the move went on, and goes on where somebody resumes it."""
    guest, there = start(make(a, Way.MDEV_PF)), make(b, Way.MDEV_PF)
    # The client shall hear of the stop before the source has sent everything.
    a.fault(Way.MDEV_PF, "move-sleep", 500)
    with moved_by_a_process(guest, there, "switchover") as client:
        os.waitpid(client.pid, os.WUNTRACED)
        wait_for(lambda: qemu_status(a, guest.name) == "postmigrate", "QEMU has sent everything")
        for host in (a, b):
            assert host.domain("mover").state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
        assert there.state["migration"] == "resuming", "it is loaded when the VM is started"
    wait_for(lambda: not b.has_domain("mover"), "the target's domain goes with the client")
    wait_for(lambda: not any(a.domain("mover").jobInfo()), "the source's job goes with the client")
    domain = a.domain("mover")
    assert domain.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
    domain.resume()
    runs_on(guest, b, resets="1", reason=libvirt.VIR_DOMAIN_RUNNING_UNPAUSED)
