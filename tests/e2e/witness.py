# SPDX-License-Identifier: Apache-2.0
"""The host's own evidence, read without any of our code: sysfs, virsh and /proc over plain SSH."""

from typing import Any

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import machine

_LOOK = r"""
virsh -q 'list --all; echo --; vol-list default' | sed 's/^/virsh /'
exec /usr/bin/python3 -I -S - <<'PYTHON'
import os

PCI, MDEV = "/sys/bus/pci/devices", "/sys/bus/mdev/devices"

def text(path):
    with open(path) as file:
        return file.read().strip()

def last(path):
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else "none"

for address in os.listdir(PCI):
    device = PCI + "/" + address
    profile = device + "/nvidia/current_vgpu_type"
    if os.path.exists(profile) and text(profile) != "0":
        print("vgpu", address, text(profile))
    if not os.path.exists(device + "/physfn") and text(device + "/class").startswith(("0x03", "0x12", "0x0403")):
        print("driver", address, last(device + "/driver"), text(device + "/driver_override"))
    elif last(device + "/driver") == "vfio-pci":
        print("vf", address, "vfio-pci")
for uuid in os.listdir(MDEV):
    device = os.path.realpath(MDEV + "/" + uuid)
    print("mdev", uuid, os.path.basename(os.path.dirname(device)), last(device + "/mdev_type"))
PYTHON
"""

_HOLDERS = r"""
exec /usr/bin/python3 -I -S - <<'PYTHON'
import glob, os

for descriptor in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        target = os.readlink(descriptor)
    except OSError:
        continue
    if target.startswith("/dev/vfio/") and target != "/dev/vfio/vfio":
        with open("/proc/" + descriptor.split("/")[2] + "/cmdline") as file:
            words = file.read().split("\0")
        print(target, words[words.index("-uuid") + 1] if "-uuid" in words else "-")
PYTHON
"""


class FleetWitness:
    """The simulated machines' own files, of all hosts at once."""

    def __init__(self, folder: lab.LabFolder) -> None:
        self._folder = folder

    def state(self) -> list[str]:
        """Every machine's whole state as text, without counters that only go up: equal means no leak."""
        states = {name: machine(self._folder, name).state() for name in lab.simulated.names(folder=self._folder)}
        return [f"{name} {one.lasting()}" for name, one in states.items()]


class Witness:
    """Asks one host."""

    def __init__(self, host: Any) -> None:
        self._host = host

    def run(self, text: str, timeout_s: float = 240) -> str:
        """Run shell text that must succeed."""
        code, out, err = self._host.run(text, timeout_s=timeout_s)
        assert code == 0, f"{text}\n{out}\n{err}"
        return str(out)

    def state(self) -> list[str]:
        """Every vGPU, mdev, driver, VF given away, domain and volume, a line each: equal means no leak."""
        lines, kind = [], "domain"
        for line in self.run(_LOOK).splitlines():
            words = line.split()
            if words[0] != "virsh":
                lines.append(line)
            elif words[1:] == ["--"]:
                kind = "volume"
            elif len(words) > 1:
                lines.append(f"domain {words[2]} {'-'.join(words[3:])}" if kind == "domain" else f"volume {words[1]}")
        return sorted(lines)

    def vgpus(self) -> dict[str, str]:
        """VF → vGPU type, of the VFs that carry one."""
        return {line.split()[1]: line.split()[2] for line in self.state() if line.startswith("vgpu ")}

    def mdevs(self) -> dict[str, tuple[str, str]]:
        """UUID → parent and type of every mediated device."""
        found = [line.split() for line in self.state() if line.startswith("mdev ")]
        return {words[1]: (words[2], words[3]) for words in found}

    def driver(self, address: str) -> str:
        """Name of the driver a function is bound to."""
        return self.run(f"basename $(readlink -f /sys/bus/pci/devices/{address}/driver)").strip()

    def holders(self) -> dict[str, str]:
        """/dev/vfio group → UUID of the VM whose QEMU has it open."""
        return dict(line.split() for line in self.run(_HOLDERS).splitlines())

    def group_of(self, device: str) -> str:
        """/dev/vfio path of a PCI function or mdev UUID."""
        kind = "pci" if ":" in device else "mdev"
        return "/dev/vfio/" + self.run(f"basename $(readlink -f /sys/bus/{kind}/devices/{device}/iommu_group)").strip()
