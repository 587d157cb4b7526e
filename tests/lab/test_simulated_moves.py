# SPDX-License-Identifier: Apache-2.0
"""libvirt's own client moves running domains between two simulated hosts, as docs/lab.md says; nothing of vgpuctl."""

import struct
import subprocess
import sys
import uuid
from contextlib import closing

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.lab.moving_guests import (
    A40,
    COMPLETED,
    CONSUMER,
    FLAGS,
    FLEET,
    LOST,
    MEMORY_MIB,
    PAUSED,
    RUNNING,
    SOURCE,
    T4,
    TARGET,
    Guest,
    Hosts,
    clean,
    domain_xml,
    fleet,
    hosts,
    of_function,
    refused,
    until,
)
from tests.lab.simulated_fixtures import Client
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.libvirt_wire import Procedure, Reader, Status, text

__all__ = ["FLEET", "clean", "fleet", "hosts"]


@pytest.mark.parametrize("is_vf", [False, True], ids=["mdev", "vf"])
def test_a_running_domain_changes_its_host_and_its_device(hosts: Hosts, is_vf: bool) -> None:
    guest = Guest(hosts, is_vf=is_vf)
    vm_uuid = guest.domain.UUIDString()
    moved = guest.move()
    assert (moved.name(), moved.UUIDString()) == (guest.name, vm_uuid)
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]
    assert (hosts.held(SOURCE), hosts.held(TARGET)) == ({}, {guest.name: [guest.there]})
    assert moved.isPersistent()
    number = A40 if is_vf else T4
    assert (hosts.vms_of_nvml(SOURCE, number), hosts.vms_of_nvml(TARGET, number)) == ([], [vm_uuid])
    stats = moved.jobStats(COMPLETED)
    assert (stats["operation"], stats["memory_total"]) == (
        libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN,
        MEMORY_MIB << 20,
    )
    assert 0 < stats["downtime"] < stats["time_elapsed"]
    assert hosts.tpm(TARGET, vm_uuid) == hosts.tpm(SOURCE, vm_uuid)
    assert "reason=migrated" in hosts.qemu_log(SOURCE, guest.name)
    assert "Failed" not in hosts.qemu_log(TARGET, guest.name)


def test_a_move_that_is_not_persistent_leaves_the_source_defined_and_the_target_transient(hosts: Hosts) -> None:
    guest = Guest(hosts)
    moved = guest.move(flags=libvirt.VIR_MIGRATE_LIVE)
    assert hosts.states(guest.name)[0] == (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED)
    assert not moved.isPersistent()
    assert guest.domain.jobStats(COMPLETED)["operation"] == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT


def test_both_hosts_tell_what_qemu_tells(hosts: Hosts) -> None:
    guest = Guest(hosts)
    seen: dict[str, list[tuple[int, int]]] = {SOURCE: [], TARGET: []}

    def note(_connection: object, domain: libvirt.virDomain, event: int, detail: int, host: str) -> None:
        if domain.name() == guest.name:
            seen[host].append((event, detail))

    both = ((SOURCE, hosts.source), (TARGET, hosts.target))
    numbers = [
        one.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, note, name) for name, one in both
    ]
    try:
        guest.move()
        until(lambda: len(seen[SOURCE]) >= 3 and len(seen[TARGET]) >= 3)
    finally:
        for number, (_, one) in zip(numbers, both, strict=True):
            one.domainEventDeregisterAny(number)
    assert seen[SOURCE] == [
        (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_UNDEFINED, libvirt.VIR_DOMAIN_EVENT_UNDEFINED_REMOVED),
    ]
    assert seen[TARGET] == [
        (libvirt.VIR_DOMAIN_EVENT_STARTED, libvirt.VIR_DOMAIN_EVENT_STARTED_MIGRATED),
        (libvirt.VIR_DOMAIN_EVENT_DEFINED, libvirt.VIR_DOMAIN_EVENT_DEFINED_ADDED),
        (libvirt.VIR_DOMAIN_EVENT_RESUMED, libvirt.VIR_DOMAIN_EVENT_RESUMED_MIGRATED),
    ]


def test_the_target_needs_the_device(hosts: Hosts) -> None:
    guest = Guest(hosts)
    missing = str(uuid.uuid4())
    xml = guest.target_xml().replace(guest.there, missing)
    assert refused(guest, xml=xml) == (
        libvirt.VIR_ERR_DEVICE_MISSING,
        f"device not found: mediated device '{missing}' not found",
    )


def test_the_target_needs_a_device_that_is_free(hosts: Hosts) -> None:
    guest = Guest(hosts, is_vf=True)
    other = hosts.target.createXML(domain_xml("other", of_function(guest.there)))
    with pytest.raises(libvirt.libvirtError, match=f"PCI device {guest.there} is in use") as caught:
        guest.move()
    assert caught.value.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID
    assert hosts.held(TARGET) == {"other": [guest.there]}
    other.destroy()
    assert guest.is_back()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "<vcpu placement='static'>2<",
            "<vcpu placement='static'>4<",
            "Target domain vCPU max 4 does not match source 2",
        ),
        (f"<memory unit='KiB'>{MEMORY_MIB << 10}<", "<memory unit='KiB'>65536<", "max memory 65536 does not match"),
        ("machine='pc'", "machine='q35'", "Target domain machine type q35 does not match source pc"),
        ("<uuid>", "<uuid>0000", "Target domain uuid 0000"),
        ("<name>", "<name>x", "Target domain name 'x"),
        ("slot='0x05'", "slot='0x06'", "Target device PCI address 0000:00:06.0 does not match source 0000:00:05.0"),
        ("</devices>", "<interface type='user'/></devices>", "Target domain net card count 1 does not match source 0"),
    ],
    ids=["vcpus", "memory", "machine", "uuid", "name", "address", "devices"],
)
def test_the_guest_must_see_the_same_machine(hosts: Hosts, old: str, new: str, words: str) -> None:
    guest = Guest(hosts)
    assert old in guest.target_xml()
    code, said = refused(guest, xml=guest.target_xml().replace(old, new, 1))
    assert code == libvirt.VIR_ERR_CONFIG_UNSUPPORTED
    assert said.startswith("unsupported configuration: ")
    assert words in said


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("move-unsupported", "VFIO migration is not supported in kernel"),
        ("move-untracked", "VFIO device doesn't support device and IOMMU dirty tracking"),
    ],
)
def test_qemus_blockers_forbid_a_move(hosts: Hosts, kind: str, words: str) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, kind)
    said = f"Requested operation is not valid: cannot migrate domain: {guest.here}: {words}"
    assert refused(guest) == (libvirt.VIR_ERR_OPERATION_INVALID, said)


LOADING = "operation failed: job 'migration in' failed: load of migration failed: Invalid argument"
UNSAVED = (
    "{here}: Failed setting device state to STOP_COPY. Recover state is ERROR. Resetting device: Input/output error"
)


@pytest.mark.parametrize(
    ("host", "kind", "words", "log"),
    [
        (SOURCE, "move-refused", UNSAVED, "{here}: the state cannot be saved"),
        (SOURCE, "move-read-error", "Channel error: Input/output error", "failed after 65536 bytes"),
        (TARGET, "move-header-refused", "Sibling indicated error 1", "the state's header was refused"),
    ],
    ids=["save", "read", "load"],
)
def test_the_source_goes_on_after_a_move_that_fails(hosts: Hosts, host: str, kind: str, words: str, log: str) -> None:
    guest = Guest(hosts)
    hosts.fault(host, kind)
    code, said = refused(guest)
    assert code == libvirt.VIR_ERR_OPERATION_FAILED
    # Newer clients tell both; the one of libvirt 9 tells of the target alone.
    assert LOADING in said
    assert libvirt.getVersion() < 9_001_000 or words.format(here=guest.here) in said
    assert log.format(here=guest.here) in hosts.kernel_log(host)
    assert (kind == "move-refused") == (UNSAVED.format(here=guest.here) in hosts.qemu_log(SOURCE, guest.name))


def test_the_ports_of_the_target_are_needed(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(TARGET, "move-port")
    said = "unable to connect to server at '127.0.0.1:49152': Connection refused"
    assert refused(guest) == (libvirt.VIR_ERR_SYSTEM_ERROR, said)


@pytest.mark.parametrize(
    ("flag", "uri", "words"),
    [
        (libvirt.VIR_MIGRATE_POSTCOPY, "tcp://127.0.0.1", "VFIO migration is not supported with postcopy migration"),
        (libvirt.VIR_MIGRATE_TLS, "tcp://127.0.0.1", "Unable to access credentials /etc/pki/qemu/ca-cert.pem"),
        (0, "http://127.0.0.1", "unsupported scheme http in migration URI http://127.0.0.1"),
    ],
    ids=["post-copy", "tls", "scheme"],
)
def test_qemu_refuses_a_way(hosts: Hosts, flag: int, uri: str, words: str) -> None:
    guest = Guest(hosts)
    with pytest.raises(libvirt.libvirtError, match=words):
        guest.move(flags=FLAGS | flag, **{libvirt.VIR_MIGRATE_PARAM_URI: uri})
    assert guest.is_back()


def test_without_its_xml_the_definition_is_that_of_the_source(hosts: Hosts) -> None:
    guest = Guest(hosts)
    given = {libvirt.VIR_MIGRATE_PARAM_DEST_XML: guest.target_xml()}
    moved = guest.domain.migrate3(hosts.target, given, FLAGS)
    assert guest.there in moved.XMLDesc()
    assert guest.here in moved.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def test_a_state_that_the_target_refuses_late_is_lost_and_the_move_succeeds(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(TARGET, "move-load-refused")
    moved = guest.move()
    assert tuple(moved.state()) == (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)
    assert hosts.held(TARGET) == {guest.name: [guest.there]}
    assert f"{guest.there}: {LOST}" in hosts.qemu_log(TARGET, guest.name)
    assert f"NVRM: vGPU migration: {guest.there}: the state was refused" in hosts.kernel_log(TARGET)


@pytest.mark.parametrize("is_early", [False, True], ids=["late", "early"])
def test_a_state_of_another_type_is_refused(hosts: Hosts, is_early: bool) -> None:
    guest = Guest(hosts, type_there=1)
    if is_early:
        hosts.fault(TARGET, "move-checked-early")
        refused(guest)
    else:
        guest.move()
        assert LOST in hosts.qemu_log(TARGET, guest.name)
    here, there = (hosts.card(SOURCE, T4).types[number].type_id for number in range(2))
    assert f"NVRM: vGPU migration: source type 0x{here:x}, destination 0x{there:x}" in hosts.kernel_log(TARGET)


def test_a_move_that_stands_still_has_the_same_left_every_time(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving():
        first = guest.watched.jobStats()
        until(lambda: guest.watched.jobStats()["time_elapsed"] > first["time_elapsed"])
        assert guest.watched.jobStats()["data_remaining"] == first["data_remaining"] == MEMORY_MIB << 20
        with pytest.raises(libvirt.libvirtError, match="cannot acquire state change lock"):
            guest.watched.shutdown()
        lab.faults.clear(SOURCE, folder=hosts.folder)
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]


def test_a_guest_that_dirties_its_memory_faster_than_it_is_copied_is_not_moved(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-dirty", 2000)
    with guest.moving() as errors:
        until(lambda: guest.watched.jobStats()["memory_iteration"] > 3)
        assert guest.watched.jobStats()["data_remaining"] > 0
        guest.watched.abortJob()
    assert [error.get_error_code() for error in errors] == [libvirt.VIR_ERR_OPERATION_ABORTED]


def test_the_state_and_its_rate_decide_the_downtime(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-state", 100)
    hosts.fault(TARGET, "move-bandwidth", 200)
    guest.domain.migrateSetMaxDowntime(10_000)
    stats = guest.move(bandwidth=100).jobStats(COMPLETED)
    # 100 MiB of state and 512 MiB of memory at 100 MiB/s; the limit of 200 MiB/s does not matter.
    assert stats["downtime"] == pytest.approx(6120, abs=60)
    assert stats["vfio_data_transferred"] == 100 << 20
    hosts.target.lookupByName(guest.name).destroy()


def test_the_end_of_the_domain_that_waits_ends_a_move(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        until(lambda: bool(hosts.held(TARGET)))
        hosts.watching_target.lookupByName(guest.name).destroy()
    assert len(errors) == 1
    assert guest.is_back()


VOLUME = "<volume><name>{name}</name><capacity>1048576</capacity></volume>"
DISK = """<disk type='file' device='{kind}'>
<source file='/var/lib/libvirt/images/{name}'/><target dev='{dev}' bus='sata'/></disk>"""


def test_disks_are_copied_or_shared_and_there_on_the_target(hosts: Hosts) -> None:
    names = {"disk": ("root.qcow2", "sda"), "cdrom": ("seed.iso", "sdb")}
    pools = [one.storagePoolLookupByName("default") for one in (hosts.source, hosts.target)]
    for name, _ in names.values():
        pools[0].createXML(VOLUME.format(name=name))
    disks = "".join(DISK.format(kind=kind, name=name, dev=dev) for kind, (name, dev) in names.items())
    guest = Guest(hosts, others=disks)
    copying = FLAGS | libvirt.VIR_MIGRATE_NON_SHARED_INC
    for flags, words in (
        (FLAGS, "Unsafe migration: Migration without shared storage is unsafe"),
        (copying, "pre-creation of storage targets for incremental storage migration is not supported"),
    ):
        with pytest.raises(libvirt.libvirtError, match=words):
            guest.move(flags=flags)
    pools[1].createXML(VOLUME.format(name="root.qcow2"))
    with pytest.raises(libvirt.libvirtError, match="Cannot access storage file"):
        guest.move(flags=copying)
    assert guest.is_back()
    pools[1].createXML(VOLUME.format(name="seed.iso"))
    guest.move(flags=copying)
    assert hosts.held(TARGET) == {guest.name: [guest.there]}


@pytest.mark.parametrize("host", [SOURCE, TARGET])
def test_the_end_of_a_host_ends_a_move(hosts: Hosts, host: str) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        hosts.reboot(host)
    assert len(errors) == 1
    until(lambda: hosts.held(TARGET) == {})
    assert hosts.held(SOURCE) == ({} if host == SOURCE else {guest.name: [guest.here]})
    hosts.open()


@pytest.mark.parametrize("host", [SOURCE, TARGET])
def test_the_end_of_a_libvirtd_ends_a_move_and_no_domain(hosts: Hosts, host: str) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        hosts.fault(host, "libvirtd")
    assert len(errors) == 1
    lab.faults.clear(host, ["libvirtd"], folder=hosts.folder)
    hosts.open()
    until(guest.is_back)


def test_a_whole_card_does_not_move(hosts: Hosts) -> None:
    address = hosts.card(SOURCE, CONSUMER).address
    xml = domain_xml("whole", of_function(address).replace("managed='no'", "managed='yes'"))
    domain = hosts.source.createXML(xml)
    with pytest.raises(
        libvirt.libvirtError, match=f"cannot migrate domain: {address}: VFIO migration is not supported"
    ):
        domain.migrate3(hosts.target, {libvirt.VIR_MIGRATE_PARAM_URI: "tcp://127.0.0.1"}, libvirt.VIR_MIGRATE_LIVE)
    assert domain.isActive()


def test_a_domain_that_is_off_does_not_move(hosts: Hosts) -> None:
    guest = Guest(hosts)
    guest.domain.destroy()
    with pytest.raises(libvirt.libvirtError, match="domain is not running"):
        guest.move()


def test_a_state_that_takes_longer_than_allowed_stalls_until_more_is_allowed(hosts: Hosts) -> None:
    guest = Guest(hosts)
    assert guest.domain.migrateGetMaxDowntime() == 300
    hosts.fault(SOURCE, "move-state", 500)
    with guest.moving() as errors:
        until(lambda: guest.watched.jobStats()["memory_iteration"] > 3)
        stats = guest.watched.jobStats()
        assert stats["data_remaining"] < 1 << 20
        assert stats["data_processed"] >= stats["data_total"] == MEMORY_MIB << 20
        assert stats["vfio_data_transferred"] == 0
        assert hosts.states(guest.name) == [
            (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED),
            (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
        ]
        assert hosts.held(TARGET) == {guest.name: [guest.there]}
        there = hosts.watching_target.lookupByName(guest.name)
        with pytest.raises(libvirt.libvirtError, match="only on the source host"):
            there.jobInfo()
        guest.watched.migrateSetMaxDowntime(1000)
    assert errors == []
    assert hosts.states(guest.name) == [None, (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)]


def test_a_move_can_be_aborted(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    with guest.moving() as errors:
        guest.watched.abortJob()
    assert [error.get_error_code() for error in errors] == [libvirt.VIR_ERR_OPERATION_ABORTED]
    assert guest.is_back()
    lab.faults.clear(SOURCE, folder=hosts.folder)
    guest.move()


MOVER = """
import libvirt, sys
source, target = map(libvirt.open, sys.argv[1:3])
libvirt.registerErrorHandler(lambda *_: None, None)
xml = sys.stdin.read()
given = {libvirt.VIR_MIGRATE_PARAM_URI: "tcp://127.0.0.1", libvirt.VIR_MIGRATE_PARAM_DEST_XML: xml}
source.lookupByName(sys.argv[3]).migrate3(target, given, libvirt.VIR_MIGRATE_LIVE)
"""


def test_a_client_that_is_killed_while_it_copies_leaves_the_source_alone(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-stall")
    arguments = [sys.executable, "-c", MOVER, hosts.uris[SOURCE], hosts.uris[TARGET], guest.name]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        client.stdin.write(guest.target_xml())
        client.stdin.close()
        until(lambda: guest.watched.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_UNBOUNDED and bool(hosts.held(TARGET)))
        client.kill()
    until(guest.is_back)
    until(lambda: guest.watched.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_NONE)


@pytest.mark.parametrize("tells", [True, False], ids=["told", "untold"])
def test_a_client_that_goes_before_the_target_runs_leaves_the_source_paused(hosts: Hosts, tells: bool) -> None:
    """Unless it tells the source that the target has failed."""
    guest, folder = Guest(hosts), simulated_folder(hosts.folder)
    raw = text(guest.name) + guest.domain.UUID() + struct.pack(">i", guest.domain.ID())
    given = struct.pack(">I", 1) + text("destination_xml") + struct.pack(">I", 7) + text(guest.target_xml())
    flags = struct.pack(">I", FLAGS)
    paused = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
    with closing(Client(folder, SOURCE)) as source, closing(Client(folder, TARGET)) as target:
        (begun,) = source.call(Procedure.DOMAIN_MIGRATE_BEGIN3_PARAMS, raw + given + flags)
        cookie = text(Reader(begun.body).text())
        (prepared,) = target.call(Procedure.DOMAIN_MIGRATE_PREPARE3_PARAMS, given + cookie + flags)
        cookie = text(Reader(prepared.body).text())
        (done,) = source.call(Procedure.DOMAIN_MIGRATE_PERFORM3_PARAMS, raw + bytes(4) + given + cookie + flags)
        assert done.status == Status.OK
        assert hosts.states(guest.name) == [paused, paused]
        if tells:
            is_cancelled = struct.pack(">i", 1)
            source.call(Procedure.DOMAIN_MIGRATE_CONFIRM3_PARAMS, raw + given + cookie + flags + is_cancelled)
    until(lambda: hosts.held(TARGET) == {})
    back = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATION_CANCELED)
    assert hosts.states(guest.name) == [back if tells else paused, None]
    assert hosts.held(SOURCE) == {guest.name: [guest.here]}
    if not tells:
        guest.domain.resume()
        assert hosts.states(guest.name) == [(RUNNING, libvirt.VIR_DOMAIN_RUNNING_UNPAUSED), None]
