# SPDX-License-Identifier: Apache-2.0
"""Nothing that tells a site leaves its host: a machine full of names and secrets, and the capture of it."""

import json
from pathlib import Path

import pytest

from tests.agent.captures import captured
from tests.agent.machine import BASE, Tree, a40, build, function, holder, profile_vf
from vgpuctl.agent.facts import qemu_logs
from vgpuctl.agent.host import Host

VM = "9e1c2b5a-7d64-4c1e-8f3a-2b6d5e4c3a21"
BOOT = "5f0c8f0e-6e56-4f0d-9d1c-aaaaaaaaaaaa"
MACHINE_ID = "4c1d5e6f708192a3b4c5d6e7f8091a2b"
ADDRESS, MAC = "10.77.3.9", "3c:ec:ef:12:34:56"
HOST, DOMAIN, USER, TENANT, NAME = "rack7-gpu3", "corp.initech.example", "mbolton", "initrode", "tps-reports"
PASSWORD, DISK, SERIAL = "swordfish42", "/srv/payroll/milton.qcow2", "S6EYNX0R812345"
SEEDS = (VM, BOOT, MACHINE_ID, ADDRESS, MAC, HOST, DOMAIN, USER, TENANT, NAME, PASSWORD, DISK, SERIAL, "payroll")

DEFINITION = f"""<domain type='kvm' xmlns:v='urn:vgpuctl:domain:1'><name>{TENANT}.{NAME}</name><uuid>{VM}</uuid>
<description>of {USER}, {ADDRESS}</description>
<metadata><v:vm tenant='{TENANT}' name='{NAME}'/></metadata>
<sysinfo type='smbios'><system><entry name='serial'>{SERIAL}</entry></system></sysinfo>
<devices><disk><source file='{DISK}'/><serial>{SERIAL}</serial></disk>
<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x41' slot='0x00' function='0x4'/></source>
<address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev>
<interface><mac address='{MAC}'/></interface><graphics type='vnc' passwd='{PASSWORD}'/></devices></domain>"""

TREE: Tree = {
    **BASE,
    **a40(total_vfs=2),
    **profile_vf(0, current="562"),
    **profile_vf(1),
    # The second GPU makes the host's NVSwitch and disks of no matter; it is bound to vfio-pci.
    **function("0000:42:00.0", driver="vfio-pci", group=90),
    **holder(77, "/dev/vfio/20", vm_uuid=VM),
    "/proc/77/cmdline": f"/usr/bin/qemu-system-x86_64\0-name\0guest={NAME}\0-uuid\0{VM}\0-drive\0file={DISK}\0",
    "/proc/sys/kernel/hostname": f"{HOST}.{DOMAIN}\n",
    "/proc/sys/kernel/random/boot_id": f"{BOOT}\n",
    "/proc/cmdline": f"BOOT_IMAGE=/vmlinuz root=UUID={VM} ip={ADDRESS} rd.iscsi.password={PASSWORD} intel_iommu=on\n",
    "/proc/net/fib_trie": f"  |-- {ADDRESS}\n     /32 host LOCAL\n  |-- 127.0.0.1\n     /32 host LOCAL\n",
    "/etc/machine-id": f"{MACHINE_ID}\n",
    f"/run/libvirt/qemu/{TENANT}.{NAME}.xml": f"<domstatus state='running' pid='77'>{DEFINITION}</domstatus>",
    f"/etc/libvirt/qemu/{TENANT}.{NAME}.xml": DEFINITION,
    f"/var/log/libvirt/qemu/{TENANT}.{NAME}.log": (
        "2026-11-01 10:00:00.000+0000: starting up libvirt version: 10.0.0, hostname: "
        f"{HOST}.{DOMAIN}\nLC_ALL=C HOME=/home/{USER} qemu-system-x86_64 -object secret,data={PASSWORD} -drive {DISK}\n"
        f"2026-11-01T10:00:01Z qemu-system-x86_64: vfio {VM}: error getting device from group 20: in use\n"
        f"2026-11-01T10:00:02Z qemu-system-x86_64: could not open {DISK}\n"
    ),
    "/var/log/audit/audit.log": (
        f'type=AVC msg=audit(9999999999.1:1): avc:  denied  {{ read }} comm="qemu-kvm" path="/home/{USER}/vfio"\n'
        f'type=USER_LOGIN msg=audit(9999999999.2:2): acct="{USER}" addr={ADDRESS}\n'
    ),
    "/dev/kmsg": (
        f"6,1,1000,-;Command line: root=UUID={VM} rd.iscsi.password={PASSWORD}\n"
        f"6,2,2000,-;scsi 0:0:0:0: Serial {SERIAL} at {ADDRESS}\n"
        f"4,3,3000,-;NVRM: Xid (PCI:0000:41:00): 43, pid=4711, name={NAME}, Ch 00000008\n"
        f"4,4,4000,-;vfio-pci 0000:41:00.4: opened by {HOST} for {VM}\n"
    ),
    "/proc/mounts": f"nas.{DOMAIN}:/payroll /srv/payroll nfs4 rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw 0 0\n",
    "/usr/lib/nvidia/sriov-manage": "#!/bin/bash\n# Copyright of somebody else\nSRIOV_ENABLED_GPUS=(2235 20b0:145f)\n",
    f"/sys/class/net/enx{MAC.replace(':', '')}/mtu": "1500\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "root", TREE)


def test_nothing_of_a_seeded_host_remains(root: Path) -> None:
    capture, anonymiser = captured(Host(str(root)))
    text = json.dumps([capture.machine, capture.libvirt]) + capture.as_file().decode("latin-1")
    text += json.dumps(capture.manifest.__dict__, default=vars)
    left = [seed for seed in (*SEEDS, MAC.replace(":", "")) if seed.lower() in text.lower()]
    assert left == []
    assert {"host", "domain", "vm", "tenant", "user", "uuid", "machine-id", "ipv4", "mac"} <= set(anonymiser.counts())


def test_the_agent_had_to_look_at_every_private_file(root: Path) -> None:
    """A capture without these questions would prove nothing."""
    asked = json.dumps(captured(Host(str(root)))[0].machine["answers"])
    for what in ("/proc/77/cmdline", "read_tail /var/log/libvirt/qemu/", "audit.log", "kernel_records", "fib_trie"):
        assert what in asked, what
    for folder in qemu_logs.DEFINITIONS:
        assert f"read_optional {folder}/" in asked


def test_what_the_agent_found_is_still_found(root: Path) -> None:
    capture, anonymiser = captured(Host(str(root)))
    text = json.dumps(capture.machine)
    replaced = anonymiser.replace(VM)
    assert "error getting device from group 20" in text
    assert "NVRM: Xid (PCI:0000:41:00): 43, pid=4711, name=hidden" in text
    assert text.count(replaced) > 3
    assert "intel_iommu=on" in text
    assert "hugetlbfs /dev/hugepages" in text
    assert "SRIOV_ENABLED_GPUS=(2235 20b0:145f" in text
    assert "somebody else" not in text


def test_the_note_of_a_contributor_is_replaced_too(root: Path) -> None:
    from tests.agent.captures import TARGET
    from vgpuctl.agent.dispatch import read_facts, record
    from vgpuctl.model.capture import recording_from
    from vgpuctl.usecases.host.record_host import anonymous_capture

    host = Host(str(root))
    note = f"our {HOST} at {ADDRESS}, ask {USER}@{DOMAIN}"
    capture, _ = anonymous_capture(read_facts(host), recording_from(record(host)), {}, TARGET, note=note)
    assert capture.manifest.note.startswith("our host-001 at 198.18.0.")
    assert not any(seed in capture.manifest.note for seed in SEEDS)
