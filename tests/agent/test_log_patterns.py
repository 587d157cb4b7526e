# SPDX-License-Identifier: Apache-2.0
"""Every expression that reads a log: a line that it finds, and the harmless twin of that line."""

import re

import pytest

from vgpuctl.agent.facts.diagnostics import find_lines
from vgpuctl.agent.recording.texts import is_wanted_line
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.diagnostics import AUDIT, KERNEL, LOG_PATTERNS, MANAGER, QEMU

GPU = "0000:41:00.0"
AT = f"vfio-pci {GPU}: "
AVC = "type=AVC msg=audit(2.5:9): avc:  denied  { read } for pid=9 "
SVIRT = "scontext=system_u:system_r:svirt_t:s0:c1,c2 tcontext=system_u:object_r:vfio_device_t:s0 tclass=chr_file"
DENIED = 'audit: type=1400 audit(1.2:3): apparmor="DENIED" operation="open" class="file" '

# (check, log, lines that are a sign, lines that are none)
CASES: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "iommu-off",
        KERNEL,
        ("NVRM: Aborting probe for VF 0000:41:00.4 since IOMMU is not present on the system.",),
        ("amdkfd: IOMMU is not present, DMA goes without it",),
    ),
    (
        "sriov-resources",
        KERNEL,
        (f"pci {GPU}: not enough MMIO resources for SR-IOV",),
        (f"pci {GPU}: SR-IOV: enough MMIO resources",),
    ),
    (
        "sriov-resources",
        KERNEL,
        (f"pci {GPU}: BAR 7: no space for [mem size 0x02000000 64bit pref]",),
        (
            f"pci {GPU}: BAR 7: no space for [mem size 0x02000000 64bit pref]",
            f"pci {GPU}: BAR 7: failed to assign [mem size 0x02000000 64bit pref]",
            f"pci {GPU}: BAR 7: assigned [mem 0x380000000000-0x380001ffffff 64bit pref]",
        ),
    ),
    (
        "sriov-resources",
        KERNEL,
        (f"pci {GPU}: VF BAR 0 [mem size 0x00800000]: can't assign; no space",),
        (
            f"pci {GPU}: VF BAR 0 [mem size 0x00800000]: can't assign; no space",
            f"pci {GPU}: VF BAR 0 [mem size 0x00800000]: failed to assign",
            f"pci {GPU}: VF BAR 0 [mem 0xa0000000-0xa07fffff]: assigned",
        ),
    ),
    # The ROM, and windows of bridges, of which the kernel makes another attempt.
    (
        "sriov-resources",
        KERNEL,
        (f"pci {GPU}: BAR 1: failed to assign [mem size 0x1000000000 64bit pref]",),
        (
            f"pci {GPU}: BAR 6: failed to assign [mem size 0x00080000 pref]",
            f"pci {GPU}: ROM [mem size 0x00080000 pref]: can't assign; no space",
            "pci 0000:40:01.1: bridge window [mem size 0x00200000 64bit pref]: can't assign; no space",
            f"pci {GPU}: BAR 5: no space for [io  size 0x0080]",
        ),
    ),
    (
        "foreign-driver",
        KERNEL,
        ("NVRM: The NVIDIA probe routine was not called for 1 device(s).",),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.06",),
    ),
    (
        "driver-without-vgpu",
        KERNEL,
        ("NVRM: vGPU is supported only on VGX capable boards",),
        ("nvidia-vgpu-vfio: vGPU migration enabled",),
    ),
    (
        "gpu-in-use",
        KERNEL,
        (f"NVRM: GPU {GPU}: Could not acquire UnbindLock",),
        (f"NVRM: GPU {GPU}: Could not acquire UnbindLock", f"NVRM: GPU {GPU}: UnbindLock acquired"),
    ),
    (
        "gpu-in-use",
        KERNEL,
        ("NVRM: Could not acquire UnbindLock for device 0000:41:00.0",),
        ("NVRM: Could not acquire UnbindLock", f"NVRM: UnbindLock acquired for device {GPU}"),
    ),
    (
        "mig-without-instance",
        KERNEL,
        ("NVRM: Failed to add vgpu create request: 0x40",),
        ("NVRM: Failed to add vgpu create request: 0x400",),
    ),
    (
        "size-conflict",
        KERNEL,
        ("NVRM: Failed to add vgpu create request: 0x56",),
        ("NVRM: Failed to add vgpu create request: 0x5",),
    ),
    (
        "fabric",
        KERNEL,
        ("nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error",),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 22013, Non-fatal, Link 12 Minion Link DLREQ interrupt",
            "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        ),
    ),
    (
        "fabric",
        KERNEL,
        ("nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 11004, Non-fatal, Link 05 ingress ACL violation",),
        ("nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 11012, Non-fatal, Link 05 single bit ECC",),
    ),
    (
        "fabric",
        KERNEL,
        ("nvidia-nvswitch0: open failed", "NVRM: fabric manager version mismatch"),
        ("nvidia-nvswitch0: open (major=507)", "NVRM: fabric manager is a failover master"),
    ),
    (
        "no-reset",
        KERNEL,
        (f"{AT}not ready 1023ms after FLR; waiting", f"{AT}not ready 65535ms after FLR; giving up"),
        (
            f"{AT}not ready 1023ms after FLR; waiting",
            f"{AT}not ready 2047ms after FLR; waiting",
            f"{AT}ready 2047ms after FLR",
        ),
    ),
    # One device is ready, the other is not.
    (
        "no-reset",
        KERNEL,
        (f"{AT}not ready 65535ms after bus reset; giving up", "vfio-pci 0000:42:00.0: ready 2047ms after bus reset"),
        (f"{AT}not ready 65535ms after bus reset; giving up", f"{AT}ready 8191ms after bus reset"),
    ),
    (
        "no-reset",
        KERNEL,
        (
            f"{AT}Unable to change power state from D3cold to D0, device inaccessible",
            f"{AT}can't change power state from D3hot to D0 (config space inaccessible)",
        ),
        (f"{AT}enabling device (0000 -> 0002)", f"{AT}Unable to change power state from D0 to D3hot"),
    ),
    (
        "access-denied",
        KERNEL,
        (
            f'{DENIED}profile="libvirt-5a" name="/dev/vfio/5" pid=7 comm="qemu-system-x86"',
            f'{DENIED}profile="libvirtd" name="/sys/bus/mdev/devices/" pid=7 comm="rpc-virtqemud"',
            f'{DENIED}profile="libvirt-5a" name="/var/lib/vgpuctl/roms/a.rom" pid=7 comm="qemu-system-x86"',
        ),
        (
            f'{DENIED}profile="/usr/bin/evince" name="/proc/driver/nvidia/params" pid=7 comm="evince"',
            f'{DENIED}profile="snap.firefox.firefox" name="/dev/nvidiactl" pid=7 comm="firefox"',
            f'{DENIED}profile="docker-default" name="/dev/nvidia0" pid=7 comm="python"',
            f'{DENIED}profile="/usr/bin/virt-manager" name="/dev/nvidiactl" pid=7 comm="virt-manager"',
            f'{DENIED}profile="libvirt-5a" name="/usr/share/egl/10_nvidia.json" pid=7 comm="qemu-system-x86"',
            DENIED.replace("DENIED", "ALLOWED") + 'profile="libvirt-5a" name="/dev/vfio/5"',
        ),
    ),
    (
        "access-denied",
        AUDIT,
        (
            f'{AVC}comm="qemu-kvm" name="12" dev="devtmpfs" {SVIRT} permissive=0',
            f'{AVC}comm="qemu-kvm" name="12" tclass=chr_file path="/dev/vfio/12"',
            f'{AVC}comm="(python3)" name="vgpuctl.pyz" scontext=system_u:system_r:init_t:s0 tclass=file',
        ),
        (
            f'{AVC}comm="Xorg" name="nvidiactl" scontext=system_u:system_r:xserver_t:s0-s0:c0.c1023 tclass=chr_file',
            f'{AVC}comm="nvidia-smi" name="params" scontext=system_u:system_r:container_t:s0:c3,c4 tclass=file',
            f'{AVC}comm="qemu-kvm" name="12" dev="devtmpfs" {SVIRT} permissive=1',
            f'{AVC}comm="qemu-kvm" name="a.iso" scontext=system_u:system_r:svirt_t:s0:c1,c2 tclass=file',
        ),
    ),
    (
        "memory-lock",
        KERNEL,
        ("vfio_pin_pages_remote: RLIMIT_MEMLOCK (65536) exceeded",),
        ("io_uring: RLIMIT_MEMLOCK (65536) exceeded",),
    ),
    (
        "memory-lock",
        QEMU,
        ("qemu-kvm: VFIO_MAP_DMA failed: Cannot allocate memory",),
        ("qemu-kvm: VFIO_MAP_DMA failed: Bad address",),
    ),
    (
        "vgpu-state-lost",
        QEMU,
        (
            "qemu-system-x86_64: 0000:02:00.1: Failed setting device state to RUNNING_P2P. Recover state is ERROR. "
            "Resetting device: Invalid argument",
        ),
        ("qemu-system-x86_64: 0000:02:00.1: Failed setting device state to STOP_COPY: Device or resource busy",),
    ),
    (
        "kernel-module",
        KERNEL,
        ("NVRM: API mismatch: the client 'nvidia-smi' has the version 550.54, but this kernel module has 535.1",),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.06",),
    ),
    (
        "secure-boot",
        KERNEL,
        (
            "Loading of module with unavailable key is rejected",
            "Loading of unsigned module is rejected",
            "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        ),
        ("nvidia: module verification failed: signature and/or required key missing - tainting kernel",),
    ),
    (
        "vgpu-manager",
        MANAGER,
        ("error: vmiop_log: (0x0): Failed to allocate the heap",),
        ("notice: vmiop_log: (0x0): Driver Version: error: vmiop_log: failed",),
    ),
    (
        "mixed-generations",
        KERNEL,
        (
            f"NVRM: The NVIDIA GPU {GPU} (PCI ID: 10de:2bb5) installed in this system requires use of the NVIDIA open"
            " kernel modules.",
            f"NVRM: The NVIDIA GPU {GPU} (PCI ID: 10de:13f2) is supported through the NVIDIA 470.xx Legacy drivers.",
        ),
        ("usb 1-1: legacy drivers are supported",),
    ),
    (
        "group-open",
        QEMU,
        ("qemu-kvm: -device vfio-pci: vfio x: error getting device from group 14: Input/output error",),
        ("qemu-kvm: -device vfio-pci: vfio x: group 14 is viable",),
    ),
    (
        "stop-race",
        KERNEL,
        ("NVRM: Failed to add vgpu delete request: 0x66",),
        ("NVRM: vgpu delete request is done",),
    ),
]


def found(check: str, log: str, lines: tuple[str, ...]) -> list[str]:
    return [one.text for one in find_lines(log, lines) if one.check == check]


@pytest.mark.parametrize(("check", "log", "sick", "harmless"), CASES)
def test_a_sign_is_found_and_its_harmless_twin_is_not(
    check: str, log: str, sick: tuple[str, ...], harmless: tuple[str, ...]
) -> None:
    assert found(check, log, sick), sick
    assert found(check, log, harmless) == []
    for line in sick[:1]:
        assert found(check, log, (line,)) == [line] and is_wanted_line(line)


def test_every_expression_finds_a_sign_of_the_cases() -> None:
    for one in LOG_PATTERNS:
        sick = [line for check, log, lines, _ in CASES if check == one.check and log in one.logs for line in lines]
        assert any(re.search(one.pattern, line, re.IGNORECASE) for line in sick), one


def test_what_ends_a_sign_is_kept_in_a_capture() -> None:
    for _, log, _, harmless in CASES:
        if log == KERNEL and len(harmless) > 1 and any(find_lines(log, harmless[:1])):
            assert is_wanted_line(harmless[-1])


def test_a_flood_of_one_device_hides_no_other() -> None:
    flood = tuple(f"mlx5_core 0000:02:00.0: not ready {number}ms after FLR; giving up" for number in range(500))
    lines = find_lines(KERNEL, (f"{AT}not ready 65535ms after FLR; giving up", *flood))
    assert [one.device for one in lines] == [GPU, *["0000:02:00.0"] * 5]
    assert {one.check for one in lines} == {CheckId.NO_RESET}


def test_an_end_that_names_no_part_ends_no_part() -> None:
    lines = (
        f"pci {GPU}: BAR 7: no space for [mem size 0x02000000]",
        f"pci {GPU}: BAR 9: no space for [mem size 0x02000000]",
        f"pci {GPU}: BAR 9: assigned [mem 0xa0000000-0xa1ffffff]",
    )
    assert found("sriov-resources", KERNEL, lines) == [lines[0]]
