# SPDX-License-Identifier: Apache-2.0
"""What the host itself says, asked without any of our code: sysfs, virsh and /proc over plain SSH."""

from typing import Any, Protocol

_LOOK = r"""
set -eu
for vf in /sys/bus/pci/devices/*/nvidia/current_vgpu_type; do
  [ -e "$vf" ] || continue
  type=$(cat "$vf"); [ "$type" = 0 ] || echo "vgpu $(basename $(dirname $(dirname $vf))) $type"
done
for mdev in /sys/bus/mdev/devices/*; do
  [ -e "$mdev" ] || continue
  real=$(readlink -f $mdev)
  echo "mdev $(basename $mdev) $(basename $(dirname $real)) $(basename $(readlink -f $mdev/mdev_type))"
done
for gpu in /sys/bus/pci/devices/*; do
  case $(cat $gpu/class) in
    0x03*|0x1200*|0x0403*)
      [ -e $gpu/driver ] && driver=$(basename $(readlink -f $gpu/driver)) || driver=none
      echo "driver $(basename $gpu) $driver $(cat $gpu/driver_override | tr ' ' '_')" ;;
  esac
done
for name in $(virsh -q list --all --name); do echo "domain $name $(virsh -q domstate $name | tr ' ' '-')"; done
for volume in $(virsh -q vol-list default | awk '{print $1}'); do echo "volume $volume"; done
"""

_HOLDERS = r"""
for fd in /proc/[0-9]*/fd/*; do
  case $(readlink $fd 2>/dev/null) in
    /dev/vfio/[0-9]*) pid=${fd#/proc/}; pid=${pid%%/*}
      echo "$(readlink $fd) $pid $(tr '\0' ' ' < /proc/$pid/cmdline | sed -n 's/.*-uuid \([^ ]*\).*/\1/p')" ;;
  esac
done | sort -u
"""


class Shell(Protocol):
    """A host that runs shell text."""

    def run(self, shell_text: str, timeout_s: float = ...) -> tuple[int, str, str]:
        """Return exit status, stdout, stderr."""


class Witness:
    """Asks one host."""

    def __init__(self, host: Any) -> None:
        self._host = host

    def run(self, text: str, timeout_s: float = 60) -> str:
        """Run shell text that must succeed."""
        code, out, err = self._host.run(text, timeout_s=timeout_s)
        assert code == 0, f"{text}\n{out}\n{err}"
        return str(out)

    def state(self) -> list[str]:
        """Every vGPU, mdev, driver, domain and volume, one line each: equal before and after means no leak."""
        return sorted(self.run(_LOOK).splitlines())

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
        return {line.split()[0]: line.split()[2] for line in self.run(_HOLDERS).splitlines() if len(line.split()) == 3}

    def group_of(self, device: str) -> str:
        """/dev/vfio path of a PCI function or mdev UUID."""
        kind = "pci" if ":" in device else "mdev"
        return "/dev/vfio/" + self.run(f"basename $(readlink -f /sys/bus/{kind}/devices/{device}/iommu_group)").strip()
