# SPDX-License-Identifier: Apache-2.0
"""The room of storage pools, of a real file system and of one that does not answer, and what VMs hold of a host."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.measured import play, read, vm_uuid
from tests.agent.simulated import Machine
from vgpuctl.agent import disk_files
from vgpuctl.agent.facts import pools
from vgpuctl.agent.host import Completed, Host
from vgpuctl.agent.readings import vms
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.memory import ACTIVE_POOLS, DEFINED_POOLS, PoolRooms, PoolSpace, UnmeasuredPool
from vgpuctl.agent.wire.mounts import Mounts, mount_of
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl_lab.simulated.machine.domains import start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

NAS = "nas:/vms"
MOUNTS = (
    "/dev/vda1 / ext4 rw 0 0\nnas:/vms /srv/vms nfs4 rw 0 0\n//nas/x /srv/cifs cifs rw 0 0\ntank/a /tank zfs rw 0 0\n"
    "1.2.3.4:6789:/ /ceph ceph rw 0 0\n/dev/sdb /srv/a\\040b xfs rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/var/lib/libvirt/images", "/"),
        ("/srv/vms/deep/er", "nas:/vms"),
        ("/srv/vmsx", "/"),
        ("/srv/cifs", "//nas/x"),
        ("/tank/vms", "/tank"),
        ("/ceph/vms", "1.2.3.4:6789:/"),
        ("/srv/a b/c", "/srv/a b"),
        ("/run/x", "/run"),
    ],
)
def test_a_file_system_of_the_network_has_the_name_of_its_source(path: str, name: str) -> None:
    mount = mount_of(MOUNTS, path)
    assert mount is not None and mount.name() == name
    assert Mounts(MOUNTS).name_of(path) == name
    assert mount_of("", path) is None and Mounts("").name_of(path) == path


def test_of_mounts_at_one_place_the_last_counts_and_no_path_without_a_root_has_one() -> None:
    mounts = Mounts("/dev/vda1 / ext4 rw 0 0\n/dev/sdb /srv xfs rw 0 0\nnas:/vms /srv nfs4 rw 0 0\nodd\n")
    assert mounts.name_of("/srv/a/b/c") == mounts.name_of("/srv/") == "nas:/vms"
    assert mounts.name_of("/") == mounts.name_of("/srv2") == "/"
    assert mounts.of("srv/a") is None and mounts.of("") is None


def _state(name: str, path: str, kind: str = "dir") -> str:
    return f"<poolstate><pool type='{kind}'><name>{name}</name><target><path>{path}</path></target></pool></poolstate>"


def _host(tmp_path: Path, **states: str) -> Host:
    files: machine.Tree = {f"{ACTIVE_POOLS}/{name}.xml": text for name, text in states.items()}
    return Host(str(machine.build(tmp_path / "root", machine.BASE, files, {"/srv/vms": None, "/proc/mounts": MOUNTS})))


def test_the_room_of_active_folders_is_read_from_their_file_system(tmp_path: Path) -> None:
    host = _host(
        tmp_path,
        vms=_state("vms", "/srv/vms", "netfs"),
        gone=_state("gone", "/gone"),
        long=_state("x" * 200, "/srv/vms"),
        broken="<pool",
    )
    unread: list[str] = []
    rooms = pools.read_rooms(host, unread)
    (found,) = rooms.spaces
    real = os.statvfs(tmp_path)
    assert (found.pool, found.path, found.filesystem) == ("vms", "/srv/vms", "nas:/vms")
    assert found.total_bytes == real.f_frsize * real.f_blocks
    assert 0 <= found.available_bytes <= found.total_bytes
    assert len(unread) == 2
    assert "broken.xml cannot be read" in unread[0] and "storage pool gone cannot be read" in unread[1]
    assert rooms.unmeasured == (UnmeasuredPool("gone", "dir", is_readable=True),)


VGS = "  vgtest/130023424/88080384\n"
"""As vgs of lvm2 2.03.16 prints it of a group on a loop device of 128 MiB with a logical volume of 40 MiB."""


def _group(name: str, group: str, kind: str = "logical") -> str:
    source = f"<source><name>{group}</name></source>"
    return _state(name, f"/dev/{group}", kind).replace("<target>", f"{source}<target>")


def _with_vgs(tmp_path: Path, script: str, **states: str) -> Host:
    host = _host(tmp_path, **states)
    program = tmp_path / "root" / "usr" / "sbin" / "vgs"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return host


def test_the_room_of_a_volume_group_is_what_lvm_tells_of_it(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    pair = {"fast": _group("fast", "vgtest"), "same": _group("same", "vgtest"), "ceph": _group("ceph", "x", "rbd")}
    host = _with_vgs(tmp_path, f'echo "$@" >>{asked}; printf "{VGS}"', **pair)
    unread: list[str] = []
    rooms = pools.read_rooms(host, unread)
    assert rooms.spaces == tuple(
        PoolSpace(name, "/dev/vgtest", "/dev/vgtest", 130_023_424, 88_080_384, is_group=True)
        for name in ("fast", "same")
    )
    assert rooms.unmeasured == (UnmeasuredPool("ceph", "rbd", is_readable=False),)
    assert unread == [], "a type that nobody can measure is no failed reading"
    (words,) = asked.read_text().splitlines()
    assert words.startswith("--readonly ") and "vg_size,vg_free" in words


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "vgs tells of no volume group vgtest"),
        (f"printf '{VGS}{VGS}'", "vgs tells of 2 volume groups vgtest"),
        ("printf ' vgtest/1e400/7\\n vgtest/1\\n vgtest/-1/-2\\n'", "vgs tells of no volume group vgtest"),
        ("echo '  WARNING: Running as a non-root user.' >&2; exit 5", "vgs ended with 5 and said WARNING: Running as"),
        (None, "the program vgs is not on this host"),
    ],
    ids=["not there", "two of one name", "no numbers", "refused", "no program"],
)
def test_a_volume_group_that_lvm_does_not_tell_is_unread(tmp_path: Path, script: str | None, said: str) -> None:
    host = _with_vgs(tmp_path, script or "", fast=_group("fast", "vgtest"), vms=_state("vms", "/srv/vms"))
    if script is None:
        (tmp_path / "root" / "usr" / "sbin" / "vgs").unlink()
    unread: list[str] = []
    rooms = pools.read_rooms(host, unread)
    assert [one.pool for one in rooms.spaces] == ["vms"]
    assert rooms.unmeasured == (UnmeasuredPool("fast", "logical", is_readable=True),)
    assert len(unread) == 1 and said in unread[0] and "storage pool fast" in unread[0]


def test_a_defined_group_is_active_where_its_devices_are_there(tmp_path: Path) -> None:
    host = _with_vgs(tmp_path, f'printf "{VGS}"')
    folder = tmp_path / "root" / DEFINED_POOLS.lstrip("/")
    folder.mkdir(parents=True)
    definition = "<pool type='logical'><name>vgtest</name><target><path>/dev/vgtest</path></target></pool>"
    (folder / "fast.xml").write_text(definition)
    (folder / "ceph.xml").write_text("<pool type='rbd'><name>ceph</name></pool>")
    assert pools.read_rooms(host, []) == PoolRooms()
    (tmp_path / "root" / "dev" / "vgtest").mkdir(parents=True)
    rooms = pools.read_rooms(host, [])
    assert [one.filesystem for one in rooms.spaces] == ["/dev/vgtest"] and rooms.unmeasured == ()


def test_a_logical_volume_takes_its_size_of_its_group(tmp_path: Path) -> None:
    spaces = (
        PoolSpace("fast", "/dev/vg0", "/dev/vg0", 100, 50, is_group=True),
        PoolSpace("vms", "/srv/vms", NAS, 100, 50),
    )
    told = {
        "web": {"block.count": "2", "block.0.path": "/dev/vg0/web", "block.0.physical": "40"}
        | {"block.1.path": "/dev/vg0/data", "block.1.physical": "2"},
        "odd": {"block.count": "2", "block.0.path": "/dev/vg0/odd", "block.1.path": "/dev/vg00/other"},
    }
    found = vms.read_rooms(_host(tmp_path), told, spaces, pools.FileSystems(MOUNTS), [])
    assert found == {"web": {"/dev/vg0": 42}}, "nothing is told of the other disk, and /dev/vg00 is another group"


def test_a_defined_pool_is_active_without_a_state_where_its_folder_is_there(tmp_path: Path) -> None:
    """Seen with libvirt 9.0: the `default` pool of a host that was booted is active and has no file in its state."""
    pool = "<pool type='dir'><name>{}</name><target><path>{}</path></target></pool>"
    root = _host(tmp_path).root
    folder = tmp_path / "root" / DEFINED_POOLS.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "default.xml").write_text(pool.format("default", "/srv/vms"))
    (folder / "off.xml").write_text(pool.format("off", "/not/there"))
    unread: list[str] = []
    assert [one.pool for one in pools.read_rooms(Host(root), unread).spaces] == ["default"] and unread == []


def test_a_file_system_that_does_not_answer_costs_its_pool_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    class Hanging(Host):
        def path(self, path: str) -> str:
            if path.startswith("/srv/vms"):
                release.wait()
            return super().path(path)

    monkeypatch.setattr(disk_files, "_ANSWER_S", 0.05)
    root = _host(tmp_path, a=_state("a", "/srv/vms"), b=_state("b", "/var")).root
    (tmp_path / "root" / "var").mkdir()
    host = Hanging(root)
    unread: list[str] = []
    try:
        assert [one.pool for one in pools.read_rooms(host, unread).spaces] == ["b"]
        assert "does not answer within" in unread[0]
        with pytest.raises(Problem, match="has not answered since"):
            host.space("/srv/vms")
    finally:
        release.set()
    while disk_files._asking:
        pass
    assert host.space("/srv/vms")[1] > 0


def test_only_regular_files_take_room(tmp_path: Path) -> None:
    host = _host(tmp_path)
    disk = tmp_path / "root" / "srv" / "vms" / "a.qcow2"
    with disk.open("wb") as file:
        file.write(b"x" * 65_536)
        file.truncate(1 << 30)
    found = host.allocated("disks", ["/srv/vms/a.qcow2", "/srv/vms", "/dev/null", "/missing"])
    assert list(found) == ["/srv/vms/a.qcow2"]
    assert found["/srv/vms/a.qcow2"][0] == "/srv/vms/a.qcow2"
    assert 65_536 <= found["/srv/vms/a.qcow2"][1] < 1 << 20, "holes take nothing"


def test_a_pool_and_disks_behind_links_are_on_the_file_system_where_they_lead(tmp_path: Path) -> None:
    """/var/lib/libvirt/images is a link to another file system, and one disk is a link once more."""
    host = _host(tmp_path, default=_state("default", "/var/lib/libvirt/images"))
    root = tmp_path / "root"
    (root / "tank" / "vms").mkdir(parents=True)
    (root / "var" / "lib" / "libvirt").mkdir(parents=True)
    (root / "var" / "lib" / "libvirt" / "images").symlink_to("../../../tank/vms")
    (root / "tank" / "vms" / "a.raw").write_bytes(b"a" * 4096)
    (root / "srv" / "vms" / "b.raw").write_bytes(b"b" * 4096)
    (root / "tank" / "vms" / "b.raw").symlink_to("../../srv/vms/b.raw")
    unread: list[str] = []
    filesystems = pools.FileSystems(MOUNTS)
    spaces = pools.read_rooms(host, unread, filesystems).spaces
    assert [(one.path, one.filesystem) for one in spaces] == [("/var/lib/libvirt/images", "/tank")]
    disks = [f"/var/lib/libvirt/images/{name}.raw" for name in "ab"]
    told = {"vm": {"block.count": "2", **{f"block.{number}.path": disk for number, disk in enumerate(disks)}}}
    assert host.allocated("disks", disks)[disks[1]][0] == "/srv/vms/b.raw"
    found = vms.read_rooms(host, told, spaces, filesystems, unread)
    assert list(found) == ["vm"] and list(found["vm"]) == ["/tank"], "the other disk is on no pool's file system"
    assert unread == []


def test_disks_of_a_file_system_that_does_not_answer_hide_no_others(tmp_path: Path) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    class Odd(Host):
        def allocated(self, what: str, paths: Sequence[str]) -> dict[str, tuple[str, int]]:
            asked.append((what, tuple(paths)))
            if "nas" in what:
                raise Problem(ProblemCode.UNREADABLE, f"{what}: the file system does not answer")
            return {path: (path, 7) for path in paths}

    host = Odd(_host(tmp_path).root)
    spaces = [PoolSpace(name, path, on, 9, 9) for name, path, on in (("a", "/tank/a", "/tank"), ("n", "/srv/vms", NAS))]
    paths = ["/tank/a/1", "/tank/b/2", "/srv/vms/3", "/silent/4", "rbd/5"]
    told = {f"vm{path[-1]}": {"block.count": "1", "block.0.path": path} for path in paths}
    filesystems, unread = pools.FileSystems(MOUNTS), list[str]()
    filesystems.silent.append("/silent")
    found = vms.read_rooms(host, told, spaces, filesystems, unread)
    assert asked == [
        ("the disks of VMs on /tank", ("/tank/a/1", "/tank/b/2")),
        (f"the disks of VMs on {NAS}", (paths[2],)),
    ]
    assert found == {"vm1": {"/tank": 7}, "vm2": {"/tank": 7}}
    assert unread == [f"the disks of VMs on {NAS}: the file system does not answer"]


XML = """<domain type='kvm'><name>acme.web</name><uuid>{uuid}</uuid>
<metadata><vgpuctl:vm xmlns:vgpuctl="urn:vgpuctl:domain:1" tenant="acme" name="web" host="gpu1"/></metadata>
<memory unit='KiB'>2097152</memory>{pages}<vcpu>1</vcpu><devices>
<disk type='file' device='disk'><source file='/var/lib/libvirt/images/web.qcow2'/><target dev='vda'/></disk>
<disk type='file' device='disk'><source file='/elsewhere/data.raw'/><target dev='vdb'/></disk></devices></domain>"""
PAGES = "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>"


def _running(tmp_path: Path, pages: str, host: type[SimulatedHost] = SimulatedHost) -> Machine:
    simulated = Machine(tmp_path, "a40", host=host)
    with simulated.files.change() as state:
        state.hugepages["2048"] = 2048
    held = ("2048", 1024) if pages else None
    start(simulated.files, vm_uuid(0), "acme.web", [], held, xml=XML.format(uuid=vm_uuid(0), pages=pages))
    return simulated


def test_host_and_vm_tell_huge_pages_and_room_on_the_pool(tmp_path: Path) -> None:
    simulated = _running(tmp_path, PAGES)
    images = "/var/lib/libvirt/images"
    play(
        simulated,
        f"host disk_total_bytes/{images} 0 0:1000",
        f"host disk_free_bytes/{images} 0 0:400",
        f"host disk_allocated_bytes/{images}/web.qcow2 0 0:77",
    )
    readings = read(simulated)
    assert readings.unread == ()
    assert readings.measured.get("hugepages_total_bytes", "2048") == 4 << 30
    assert readings.measured.get("hugepages_free_bytes", "2048") == 2 << 30
    assert readings.measured.get("hugepages_free_bytes", "1048576") is None, "the host keeps none of this size"
    total = readings.measured.get("memory_total_bytes")
    assert total is not None and readings.measured.get("memory_without_hugepages_bytes") == total - (4 << 30)
    assert readings.measured.get("pool_total_bytes", "default", images) == 1000
    assert readings.measured.get("pool_available_bytes", "default", images) == 400
    (vm,) = readings.vms
    assert vm.measured.all("hugepages_bytes") == ((("2048",), float(2 << 30)),)
    assert vm.measured.all("disk_allocated_bytes") == (((images,), 77.0),), "a disk elsewhere is on no pool"


def test_a_host_tells_of_pools_without_a_reading_and_each_reason(tmp_path: Path) -> None:
    simulated = _running(tmp_path, "")
    states = {"ceph": _group("ceph", "x", "rbd"), "fast": _group("fast", "vg0"), "scsi": "<pool type='scsi'/>"}
    place = simulated.files.root / ACTIVE_POOLS.lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    for name, text in states.items():
        (place / f"{name}.xml").write_text(text)
    readings = read(simulated)
    assert readings.measured.all("pool_unmeasured") == (
        (("ceph", "rbd", "not-measurable"), 1.0),
        (("fast", "logical", "not-readable"), 1.0),
    )
    assert [one for one in readings.unread if "pool" in one] == [
        "the room of storage pool fast cannot be read: the program vgs is not on this host"
    ]
    assert readings.measured.all("pool_total_bytes"), "the others are read"


@pytest.mark.parametrize(
    "pages",
    [
        "",
        "<memoryBacking><hugepages/></memoryBacking>",
        PAGES.replace("</hugepages>", "<page size='1048576'/></hugepages>"),
        PAGES.replace("2048", "9" * 20),
        PAGES.replace("KiB", "M"),
    ],
    ids=["none", "a usual size that the kernel does not tell", "two sizes", "a long number", "another unit"],
)
def test_huge_pages_of_no_single_size_are_not_told(tmp_path: Path, pages: str) -> None:
    (vm,) = read(_running(tmp_path, pages)).vms
    assert vm.measured.all("hugepages_bytes") == ()


def test_the_usual_page_size_counts_where_the_domain_names_none(tmp_path: Path) -> None:
    simulated = _running(tmp_path, "<memoryBacking><hugepages/></memoryBacking>")
    with simulated.files.change() as state:
        state.files["/proc/meminfo"] = "MemTotal: 8 kB\nMemAvailable: 4 kB\nHugepagesize:    2048 kB\n"
    (vm,) = read(simulated).vms
    assert vm.measured.all("hugepages_bytes") == ((("2048",), float(2 << 30)),)


def test_disks_that_cannot_be_asked_hide_themselves_alone(tmp_path: Path) -> None:
    class Odd(SimulatedHost):
        def allocated(self, what: str, paths: Sequence[str]) -> dict[str, tuple[str, int]]:
            raise Problem(ProblemCode.UNREADABLE, f"{what}: EIO")

    readings = read(_running(tmp_path, PAGES, Odd))
    (vm,) = readings.vms
    assert vm.measured.all("disk_allocated_bytes") == ()
    assert vm.measured.get("memory_rss_bytes") is not None
    assert readings.unread == (
        "the disks of VMs on /: EIO",
        "the disks of VMs on /var/lib/libvirt/images: EIO",
    )
    assert readings.measured.all("pool_available_bytes")


def test_the_time_that_pools_took_is_none_for_the_vms(tmp_path: Path) -> None:
    limits: list[float] = []

    class Slow(SimulatedHost):
        def space(self, path: str) -> tuple[str, int, int]:
            self._skipped_s += 45.0
            return super().space(path)

        def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
            limits.append(timeout_s)
            return super().run(argv, timeout_s=timeout_s, changes=changes)

    (vm,) = read(_running(tmp_path, PAGES, Slow)).vms
    assert vm.measured.get("vcpus") == 1
    assert limits == [pytest.approx(5.0, abs=1.0)]
