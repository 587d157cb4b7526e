# SPDX-License-Identifier: Apache-2.0
"""QEMU's own guest agent in a Linux guest, asked through libvirt: by an honest probe, and by those that are not."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab_fixtures import lab_folder
from tests.libvirtd_fixture import LocalLibvirtd
from tests.unit.guests.cases import facts, vm
from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.disk_view import DiskView
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.facts.smi_log import SMI_PATHS
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live import disks, guest_agent
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.guest_agent import agent_answers, ask_probe
from vgpuctl.model.image import BaseImage, ImageFormat
from vgpuctl.model.vm import DirectKernel
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.initramfs import Archive, add_modules, busybox
from vgpuctl_lab.kernel import ensure_kernel

__all__ = ["lab_folder"]

REPORT = {
    "version": 1,
    "driver": "580.105.08",
    "gpus": [{"name": "NVIDIA A40-8Q", "memory_mib": 8192, "licence": "Licensed (Expiry: 2026-12-1 0:0:0 GMT)"}],
    "cuda_devices": 1,
    "cuda_copies": 1,
    "peer_copies": [{"source": 0, "target": 1, "problem": "no peer access", "mib_s": None}],
}
ARGUMENTS = (
    "console=ttyS0 nokaslr tsc=reliable no_timer_check mitigations=off cryptomgr.notests rodata=off"
    " initcall_blacklist=load_system_certificate_list,init_kprobe_trace panic=-1"
)
INIT = """#!/bin/busybox sh
b=/bin/busybox
for folder in proc sys dev run tmp var/run; do $b mkdir -p /$folder; done
$b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs dev /dev
for file in $($b cat /modules/order); do $b insmod /modules/$file; done
until port=$($b grep -l org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name 2>/dev/null); do $b sleep 0.1; done
port=$($b basename $($b dirname $port))
/usr/sbin/qemu-ga --method virtio-serial --path /dev/$port --daemonize
echo agent runs >/dev/ttyS0
while $b pidof qemu-ga >/dev/null; do $b sleep 0.2; done
for number in 1 2 3 4 5 6; do $b sleep 2; /hostile /dev/$port $number; done
while :; do $b sleep 1000; done
"""
# In place of QEMU's agent: it answers libvirt's guest-sync, and the next command in its own way. Then it hangs up.
HOSTILE = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void say(int port, const char *text) { if (write(port, text, strlen(text)) < 0) exit(1); }
int main(int count, char **given)
{
    static char line[65536], flood[65536], answer[64];
    int port = open(given[1], O_RDWR), at = 0;
    memset(flood, 'x', sizeof flood - 1);
    for (;;) {
        if (read(port, line + at, 1) != 1) { usleep(50000); continue; }
        if (line[at] != '\n') { at++; continue; }
        line[at] = 0; at = 0;
        char *id = strstr(line, "\"id\":");
        if (strstr(line, "guest-sync") && id) {
            snprintf(answer, sizeof answer, "{\"return\": %lld}\n", atoll(id + 5));
            say(port, answer);
            continue;
        }
        if (atoi(given[2]) > 4 && strstr(line, "guest-ping")) { say(port, "{\"return\": {}}\n"); continue; }
        if (atoi(given[2]) == 6 && strstr(line, "-freeze")) { say(port, "{\"return\": 1}\n"); continue; }
        alarm(8); /* A write waits for ever when libvirt has had enough and reads no more. */
        switch (atoi(given[2])) {
        case 1: for (int n = 0; n < 12; n++) { say(port, n ? " " : "{"); usleep(300000); } return 0;
        case 2: for (int n = 0; n < 200; n++) say(port, flood); return 0;
        case 3: say(port, "{\"return\": {\"exited\": true, \"out-data\": \"e30=\"}}\n"); sleep(1); return 0;
        case 5: case 6: for (;;) pause();
        default: return 0;
        }
    }
}
"""
# Linux takes the whole of a path of Windows for a program's name, and looks for it in its own folders.
SMI = """#!/bin/busybox sh
echo '<nvidia_smi_log><driver_version>573.48</driver_version>'
echo "<gpu><product_name>$*</product_name></gpu></nvidia_smi_log>"
"""
# Each time the probe is run it is another one.
PROBE = f"""#!/bin/busybox sh
b=/bin/busybox
number=$($b cat /number 2>/dev/null || echo 0)
echo $((number + 1)) >/number
case $number in
0) echo '{json.dumps(REPORT)}' ;;
1) $b head -c 3000000 /dev/zero | $b tr '\\0' x ;;
2) echo '{{"version": 1, "version": 2}}' ;;
3) echo '{{"version": 1, "gpus": [{{"name": ["\\u001b]0;owned"]}}]}}' ;;
4) echo no licence; exit 3 ;;
5) $b sleep 30 ;;
6) $b kill $($b pidof qemu-ga); $b sleep 5 ;;
esac
"""


@pytest.fixture(scope="module")
def guest(libvirtd: LocalLibvirtd, lab_folder: LabFolder) -> Iterator[tuple[Hypervisor, DomainView]]:
    """A running guest whose agent has said that it runs."""
    kernel = ensure_kernel(lab_folder)
    initrd = libvirtd.folder / "agent-initramfs"
    initrd.write_bytes(_initramfs(kernel.modules, libvirtd.folder))
    with Hypervisor(libvirtd.uri, host="gpu1") as opened:
        storage = Storage(opened)
        storage.ensure_pool("default")
        root = storage.create_disk("default", "agent", 16)
        direct = DirectKernel(str(kernel.image), str(initrd), ARGUMENTS)
        made = domain_view(vm(), [], facts(kvm=False), disk=DiskView(root.path), direct_kernel=direct)
        made = replace(made, memory_mib=256, vcpus=1, name="agent")
        opened.define(render_domain(made))
        opened.start(made.name)
        try:
            _wait_for_agent(opened, made)
            yield opened, made
        finally:
            opened.destroy(made.name)
            opened.undefine(made.name)
            for volume in storage.volumes("default"):
                storage.delete_volume("default", volume.name)


def _initramfs(modules: Path, folder: Path) -> bytes:
    archive = Archive()
    archive.add_folder("dev")
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    archive.add("init", INIT.encode(), 0o755)
    archive.add("usr/local/lib/vgpuctl/probe", PROBE.encode(), 0o755)
    archive.add(f"bin/{SMI_PATHS[1]}", SMI.encode(), 0o755)
    archive.add("etc/os-release", b"ID=mswindows\n")
    (folder / "hostile.c").write_text(HOSTILE)
    made = folder / "hostile"
    subprocess.run(["gcc", "-static", "-O", "-o", str(made), f"{made}.c"], check=True, timeout=60)
    archive.add("hostile", made.read_bytes(), 0o755)
    agent = Path("/usr/sbin/qemu-ga")
    archive.add(str(agent)[1:], agent.read_bytes(), 0o755)
    needed = subprocess.run(["ldd", str(agent)], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(0x", needed):
        archive.add(library[1:], Path(library).read_bytes(), 0o755)
    add_modules(archive, modules, ("virtio_pci", "virtio_console"))
    return archive.finished()


def _wait_for_agent(hypervisor: Hypervisor, view: DomainView, state: str = "connected") -> None:
    deadline = time.monotonic() + 120
    while True:
        xml = hypervisor.xml(view.name) or ""
        if f"name='org.qemu.guest_agent.0' state='{state}'" in xml:
            return
        assert time.monotonic() < deadline, f"the guest's agent is not {state}"
        time.sleep(0.1)


def _snapshot(hypervisor: Hypervisor, view: DomainView, name: str, *, quiesce: bool | None) -> tuple[LiveChange, bool]:
    live = LiveDisks(hypervisor, view.name, uuid=view.uuid)
    (active,) = [one.path for one in domain_disks(live.xml() or "") if one.path is not None]
    overlay = Storage(hypervisor).create_overlay("default", name, 16, BaseImage(active, ImageFormat.QCOW2, 16 * 2**20))
    try:
        return live.snapshot({active: overlay.path}, quiesce=quiesce)
    finally:
        assert [one.path for one in domain_disks(live.xml() or "")] == [overlay.path]


def test_a_guest_s_agent_freezes_its_file_systems_for_a_snapshot(guest: tuple[Hypervisor, DomainView]) -> None:
    for name, quiesce in (("auto", None), ("asked", True), ("plain", False)):
        done = _snapshot(*guest, name, quiesce=quiesce)
        assert done == (LiveChange.DONE, quiesce is not False)


def _is_read(hypervisor: Hypervisor, view: DomainView) -> None:
    """The first answer of the probe is a report, and its os-release says mswindows."""
    report = ask_probe(hypervisor, view.name, uuid=view.uuid)
    assert (report.driver, report.cuda_copies) == ("580.105.08", 1)
    assert [(one.source, one.target, one.problem) for one in report.peer_copies or ()] == [(0, 1, "no peer access")]
    assert [(gpu.name, gpu.memory_mib) for gpu in report.gpus] == [("NVIDIA A40-8Q", 8192)]
    seen = ask_probe(hypervisor, view.name, uuid=view.uuid, is_windows=None)
    assert (seen.driver, [gpu.name for gpu in seen.gpus]) == ("573.48", ["-q -x"])


def test_the_probe_of_a_guest_is_read(guest: tuple[Hypervisor, DomainView]) -> None:
    _is_read(*guest)


@pytest.mark.long(
    "tests/integration/libvirt/test_guest_agent.py::test_the_probe_of_a_guest_is_read",
    "tests/unit/guests/test_probe.py::test_other_answers_are_refused",
    "tests/unit/guests/test_hostile_agent.py::test_a_beginning_in_other_words_is_refused",
    "tests/unit/guests/test_hostile_agent.py::test_an_end_in_other_words_is_refused",
)
def test_probes_of_hostile_guests(guest: tuple[Hypervisor, DomainView], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a guest of its own: each answer of the probe is another one."""
    hypervisor, view = guest

    def ask(timeout_s: float = 20) -> object:
        return ask_probe(hypervisor, view.name, uuid=view.uuid, timeout_s=timeout_s)

    _is_read(hypervisor, view)
    for said in (
        "characters|more than a probe writes",
        "key 'version' is written twice",
        "Expected `str | null`, got `array`",
        "ended with 3",
        r"did not end within 1 s",
    ):
        with pytest.raises(GuestError, match=said) as refused:
            ask(timeout_s=1 if "within" in said else 20)
        assert "\x1b" not in str(refused.value) + "".join(refused.value.context)
    monkeypatch.setattr(guest_agent, "ANSWER_S", 2)
    with pytest.raises(GuestError, match=r"guest agent of agent"):
        ask()
    # The next agents are the tenant's own: slow, flooding, answering an older question, and hanging up.
    for said in ("not responding", "not responding|disappeared", "'exited': True", "disappeared"):
        _wait_for_agent(hypervisor, view, "disconnected")
        _wait_for_agent(hypervisor, view)
        with pytest.raises(GuestError, match=said):
            ask()
    # The last two answer at first: one hangs when it has to freeze, the other when it has to thaw.
    monkeypatch.setattr(disks, "FREEZE_S", 2)
    for name, is_frozen in (("freeze", False), ("thaw", True)):
        _wait_for_agent(hypervisor, view, "disconnected")
        _wait_for_agent(hypervisor, view)
        assert agent_answers(hypervisor, view.name, uuid=view.uuid)
        assert _snapshot(hypervisor, view, name, quiesce=None) == (LiveChange.DONE, is_frozen)
