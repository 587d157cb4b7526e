# SPDX-License-Identifier: Apache-2.0
# Brings an emulated host back to how it was after its first start. Runs as root in the host.
set -u
virsh="virsh -q -c qemu:///system"
for name in $($virsh list --name); do $virsh destroy "$name"; done
for name in $($virsh list --all --name); do
    $virsh undefine "$name" --nvram --managed-save --snapshots-metadata >/dev/null || $virsh undefine "$name"
done
for volume in $($virsh vol-list default | awk '$1 != "idle.img" { print $1 }'); do $virsh vol-delete "$volume" default >/dev/null; done
rm -rf /etc/mdevctl.d/[0-9]* /etc/vgpuctl/* /var/lib/vgpuctl/*
rm -f /etc/systemd/system/vgpuctl-restore.service /etc/systemd/system/multi-user.target.wants/vgpuctl-restore.service

control() {
    exec 3<>/proc/vgpulab/control
    echo "$1" >&3
    read -r answer <&3
    exec 3>&-
    [ "$answer" != "${answer#ok}" ]
}
rm -rf /run/vgpulab-faults
cp /run/lab/sriov-manage /usr/lib/nvidia/sriov-manage
moves="move-unsupported move-untracked move-no-precopy move-refused move-read-error move-header-refused move-checked-early move-load-refused move-state move-bandwidth move-dirty move-sleep"
gpus=$(awk '$1 == "card" && $3 != "interface=vf" { print $2 }' /proc/vgpulab/cards)
for address in $gpus; do
    for fault in fallen vf-wedged busy unbind-lock removal-delay refuse xid ecc lock-busy vfs-unregistered $moves; do
        control "fault $address $fault 0" || exit 1
    done
done
for mdev in /sys/bus/mdev/devices/*; do
    [ ! -e "$mdev" ] || echo 1 >"$mdev/remove"
done
echo 0 >/sys/module/vgpulab/parameters/removal_delay_ms
for type in /sys/bus/pci/devices/*/nvidia/current_vgpu_type; do
    [ -e "$type" ] || continue
    # A QEMU that was ended a moment ago may still hold it.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(cat "$type")" != 0 ] || break
        echo 0 >"$type" 2>/dev/null || sleep 1
    done
    [ "$(cat "$type")" = 0 ] || exit 1
done
plain=$(awk '$1 == "card" && $3 == "interface=vf" { print $2 }' /proc/vgpulab/cards)
cards=$(awk '$1 == "card" { print $2 }' /proc/vgpulab/cards)
companions=$(awk '$1 == "companion" { print $2 }' /proc/vgpulab/cards)
for address in $cards $companions; do
    device=/sys/bus/pci/devices/$address
    driver=$(basename "$(readlink "$device/driver" 2>/dev/null)")
    case $address in
    *.0) wanted=nvidia ;;
    *) wanted= ;;
    esac
    case " $(echo $plain) " in
    *" $address "*) wanted=xe ;;
    esac
    echo >"$device/driver_override"
    if [ "$driver" != "$wanted" ]; then
        [ -z "$driver" ] || echo "$address" >"$device/driver/unbind" || exit 1
        [ -z "$wanted" ] || echo "$address" >"/sys/bus/pci/drivers/$wanted/bind" || exit 1
    fi
    if [ "$wanted" = xe ]; then
        echo 0 >"$device/sriov_numvfs" || exit 1
        echo 1 >"$device/sriov_drivers_autoprobe"
    elif [ -e "$device/sriov_numvfs" ] && [ "$(cat "$device/sriov_numvfs")" != 0 ]; then
        /usr/lib/nvidia/sriov-manage -d "$address" || exit 1
    fi
done
# Modes and the scheduler, which a start of the host resets.
for address in $gpus; do
    state=$(grep "^card $address " /proc/vgpulab/state)
    case $state in *" hetero=1 "*) control "heterogeneous $address 0" || exit 1 ;; esac
    case $state in *" sched_policy=1 "*) ;; *) control "scheduler $address policy=1 arr=0 slice_us=2000 frequency=480" || exit 1 ;; esac
    case $state in *" mig_pending=1 "* | *" mig=1 "*)
        sed -n "s/^ci $address gi=\\([0-9]*\\) id=\\([0-9]*\\) .*/ci-destroy $address \\1 \\2/p
            s/^gi $address id=\\([0-9]*\\) .*/gi-destroy $address \\1/p" /proc/vgpulab/state | sort |
            while read -r command; do control "$command" || exit 1; done || exit 1
        control "mig-mode $address 0" || exit 1
        ;;
    esac
done
exit 0
