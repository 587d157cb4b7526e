# SPDX-License-Identifier: Apache-2.0
"""A small Linux guest with drivers: it says on its console which disks and interfaces come and go."""

from vgpuctl_lab.initramfs import Archive, add_modules, busybox
from vgpuctl_lab.kernel import Kernel

READY = "ready"
ARGUMENTS = "console=ttyS0 quiet"
# Hot-plug of PCI devices is built into Debian's kernel.
_MODULES = ("virtio_pci", "virtio_blk", "virtio_scsi", "sd_mod", "virtio_net", "e1000e")
_INIT = """#!/bin/busybox sh
bin=/bin/busybox
$bin mkdir -p /dev /proc /sys /seen
$bin mount -t devtmpfs none /dev
$bin mount -t proc none /proc
$bin mount -t sysfs none /sys
while read -r module; do $bin insmod "/modules/$module"; done </modules/order
say() { echo "guest: $*" >/dev/ttyS0; }

# Describes a device; fails for one that is being removed, whose files go one by one.
about() {
    case $1 in
    /sys/class/net/*)
        mac=$($bin cat "$1/address" 2>/dev/null) || return 1
        echo "interface $mac" ;;
    *)
        serial=
        case $1 in
        */sd*)
            [ -e "$1/device/vpd_pg80" ] || return 1
            serial=$($bin tail -c +5 "$1/device/vpd_pg80") ;;
        *)
            serial=$($bin cat "$1/serial" 2>/dev/null) || return 1 ;;
        esac
        # A disk that is being removed answers with no serial number and no size for a moment.
        [ -n "$serial" ] || [ ! -e "/seen/${1##*/}" ] || return 1
        sectors=$($bin cat "$1/size" 2>/dev/null) || return 1
        [ "$sectors" -gt 0 ] || return 1
        echo "disk $serial $sectors" ;;
    esac
}

look() {
    for device in /sys/block/vd* /sys/block/sd* /sys/class/net/e*; do
        [ -e "$device" ] || continue
        now=$(about "$device") || continue
        seen=/seen/${device##*/}
        if [ -e "$seen" ]; then read -r before <"$seen"; else before=; fi
        [ "$now" = "$before" ] && continue
        echo "$now" >"$seen"
        say "has $now"
        case $now in interface*)
            $bin udhcpc -n -q -t 3 -i "${device##*/}" -s /lease >/dev/null 2>&1 ;;
        esac
    done
    for seen in /seen/*; do
        [ -e "$seen" ] || continue
        [ -e "/sys/block/${seen##*/}" ] || [ -e "/sys/class/net/${seen##*/}" ] && continue
        read -r before <"$seen"
        $bin rm "$seen"
        say "lost $before"
    done
}

look
say ready
while :; do look; $bin usleep 200000; done
"""
_LEASE = """#!/bin/busybox sh
case $1 in
deconfig) /bin/busybox ip link set "$interface" up ;;
bound) echo "guest: address $ip" >/dev/ttyS0 ;;
esac
"""


def initramfs(kernel: Kernel) -> bytes:
    """Its only files: busybox, the drivers, and a first process that looks for devices all the time."""
    archive = Archive()
    for folder in ("dev", "proc", "sys", "seen"):
        archive.add_folder(folder)
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    add_modules(archive, kernel.modules, _MODULES)
    archive.add("init", _INIT.encode(), 0o755)
    archive.add("lease", _LEASE.encode(), 0o755)
    return archive.finished()
