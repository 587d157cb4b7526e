# SPDX-License-Identifier: Apache-2.0
"""Known answers of libvirt and QEMU lead to a hint. They are of libvirt 9.0 to 11.3 and QEMU 7.2 to 10.0."""

import subprocess
import sys

import pytest

from vgpuctl.guests.libvirt_hints import hint_for


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ("internal error: Unmanaged PCI device 0000:3d:00.4 must be manually detached from the host", "libvirt 9.7"),
        (
            "Requested operation is not valid: PCI device 0000:41:00.0 is in use by driver QEMU, domain a.b",
            "holds the device",
        ),
        ("Requested operation is not valid: mediated device /x is in use by driver QEMU, domain a", "holds the device"),
        ("Network not found: no network with matching name 'blue'", "net-list"),
        ("Requested operation is not valid: network 'default' is not active", "net-start"),
        ("cannot allocate 4096 bytes in file '/x': No space left on device", "pool-info"),
        ("internal error: qemu unexpectedly closed the monitor: vfio 0000:41:00.0: VFIO_MAP_DMA failed: x", "pinned"),
        (
            "Failed to connect socket to '/var/run/libvirt/virtstoraged-sock': No such file or directory",
            "enable --now virtstoraged.socket",
        ),
        ("Cannot access storage file '/srv/vms/a.qcow2': Permission denied", "semanage fcontext -a -t virt_image_t"),
        ("internal error: process exited: Could not access KVM kernel module: Permission denied", "/dev/kvm"),
        ("operation failed: Unable to find any firmware to satisfy 'efi'", "ovmf"),
        ("unsupported configuration: qemu does not support SGA", "--firmware uefi"),
        ("internal error: Unable to find any usable hugetlbfs mount for 1048576 KiB", "check-hosts"),
        ("internal error: cannot load AppArmor profile 'libvirt-1234'", "AppArmor"),
        ("error getting device from group 14: Input/output error", "nvidia-vgpu-mgr"),
        ("unsupported configuration: spice graphics are not supported with this QEMU", "qemu-system-modules-spice"),
        ("unsupported configuration: domain configuration does not support video model 'qxl'", "--display vnc"),
        ("Address space limit 0xffffffffff < 0x1ffffffffff phys-bits too low (40)", "fewer GPUs"),
    ],
)
def test_a_known_answer_has_a_hint(answer: str, part: str) -> None:
    assert part in (hint_for(answer) or "")


_CLOSED = "internal error: QEMU unexpectedly closed the monitor (vm='web'): 2026-11-28T10:00:00.1Z qemu-kvm: "
_BLOCK = '-blockdev {"driver":"file","filename":"/var/lib/libvirt/images/a.qcow2","node-name":"libvirt-1-storage"}: '
_VFIO = (
    '-device {"driver":"vfio-pci","host":"0000:41:00.4","id":"ua-gpu0","bus":"pci.6","addr":"0x0"}: vfio 0000:41:00.4: '
)
WITH_TWINS = [
    (
        _CLOSED + _BLOCK + "Could not open '/var/lib/libvirt/images/a.qcow2': Input/output error",
        "smartctl",
        _CLOSED + _VFIO + "error getting device from group 7: Input/output error",
    ),
    (
        _CLOSED
        + _VFIO
        + "error getting device from group 7: Input/output error; Verify all devices in group 7 are bound to "
        "vfio-<bus> or pci-stub and not already in use",
        "vendor's driver",
        "Cannot access storage file '/vfio/mdev.qcow2': Input/output error",
    ),
    (
        'qemu-kvm: -device {"driver":"virtio-blk-pci","id":"virtio-disk0"}: Failed to get "write" lock; Is another '
        "process using the image [/srv/a.qcow2]?",
        "fuser",
        "Failed to get guest time: lock is held",
    ),
    (
        _CLOSED + _VFIO + "failed to open /dev/vfio/14: Device or resource busy",
        "holds the device",
        "Unable to add bridge br0 port vnet0: Device or resource busy",
    ),
    (
        _CLOSED
        + _VFIO
        + "group 14 is not viable; Please ensure all devices within the iommu_group are bound to their vfio bus "
        "driver.",
        "IOMMU group",
        "Domain not found: no domain with matching name 'group is not viable'",
    ),
    (
        _CLOSED
        + _VFIO
        + "failed to setup container for group 11: Failed to set iommu for container: Operation not permitted",
        "interrupt remapping",
        "unable to set user and group to '64055:994' on '/srv/vfio': Operation not permitted",
    ),
    (
        _CLOSED
        + _VFIO
        + "memory listener initialization failed: Region pc.ram: vfio_dma_map(0x55, 0x0, 0x80000000, 0x7f) = -12 "
        "(Cannot allocate memory)",
        "pinned",
        "cannot fork child process: Cannot allocate memory",
    ),
    (
        "cannot limit locked memory of process 4711 to 17179869184: Operation not permitted",
        "CAP_SYS_RESOURCE",
        "Cannot open log file: '/var/log/libvirt/qemu/memlock.log': Operation not permitted",
    ),
    (
        "device not found: mediated device '4b20d080-1b54-4048-85b3-a6a62d165c01' not found",
        "no such device any more",
        "Network not found: no network with matching name 'mdev'",
    ),
    (
        "unsupported configuration: host doesn't support passthrough of host PCI devices: requires VFIO support",
        "modprobe vfio-pci",
        "unsupported configuration: pci backend driver type xen is not supported",
    ),
    (
        "internal error: Unable to find any usable hugetlbfs mount for 1048576 KiB",
        "check-hosts",
        "Storage volume not found: no storage vol with matching path '/dev/hugetlbfs'",
    ),
    (
        _CLOSED + "os_mem_prealloc: Insufficient free host memory pages available to allocate guest RAM",
        "free_hugepages",
        "Cannot access storage file '/srv/os_mem_prealloc': Permission denied",
    ),
    (
        _CLOSED
        + '-object {"qom-type":"memory-backend-file","id":"ram-node0","mem-path":"/dev/hugepages/libvirt/qemu/1-web"}: '
        "unable to map backing store for guest RAM: Cannot allocate memory",
        "free_hugepages",
        "cannot fork child process: Cannot allocate memory",
    ),
    (
        _CLOSED + "cannot set up guest memory 'pc.ram': Cannot allocate memory",
        "ask for less",
        "Domain not found: no domain with matching name 'Cannot allocate memory'",
    ),
    (
        "Cannot get interface MTU on 'br0': No such device",
        "no bridge of this name",
        "Cannot access storage file '/srv/br0': No such device",
    ),
    (
        "internal error: Unable to add port vnet0 to OVS bridge br-int",
        "ovs-vsctl",
        "internal error: Unable to add lease for bridge",
    ),
    (
        "Unable to open /dev/net/tun, is tun module loaded?: No such file or directory",
        "modprobe tun",
        "Cannot access storage file '/srv/tun.img' (as uid:64055, gid:64055): No such file or directory",
    ),
    (
        "Unable to create tap device vnet0: Operation not permitted",
        "CAP_NET_ADMIN",
        "unable to set user and group to '64055:994' on '/srv/tap': Operation not permitted",
    ),
    (
        "error creating macvtap interface macvtap0@eth1 (52:54:00:00:00:01): Device or resource busy",
        "its master",
        _CLOSED + _VFIO + "failed to open /dev/vfio/14: Device or resource busy",
    ),
    (
        "Requested operation is not valid: network 'default' is not active",
        "net-start",
        "Requested operation is not valid: storage pool 'network' is not active",
    ),
    (
        "Storage pool not found: no storage pool with matching name 'fast'",
        "pool-list",
        "Network not found: no network with matching name 'storage pool'",
    ),
    (
        "Requested operation is not valid: storage pool 'default' is not active",
        "pool-start",
        "Requested operation is not valid: network 'pool' is not active",
    ),
    (
        "Cannot access storage file '/srv/a.qcow2' (as uid:64055, gid:64055): No such file or directory",
        "findmnt",
        "Cannot check QEMU binary /usr/bin/qemu-system-x86_64: No such file or directory",
    ),
    (
        "Cannot access storage file '/home/a/a.qcow2' (as uid:64055, gid:64055): Permission denied",
        "semanage",
        _CLOSED + "Could not access KVM kernel module: Permission denied",
    ),
    (
        _CLOSED + "Could not access KVM kernel module: Permission denied",
        "/dev/kvm",
        "Cannot access storage file '/srv/kvm.qcow2': Permission denied",
    ),
    (
        _CLOSED + "ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy",
        "enable virtualisation",
        _CLOSED + _VFIO + "failed to open /dev/vfio/14: Device or resource busy",
    ),
    (
        _CLOSED + _BLOCK + "Could not open '/mnt/nfs/a.qcow2': Stale file handle",
        "NFS",
        "Invalid handle: '/mnt/nfs/a.qcow2'",
    ),
    (
        "unable to set user and group to '64055:994' on '/mnt/nfs/a.qcow2': Operation not permitted",
        "no_root_squash",
        "Unable to create tap device vnet0: Operation not permitted",
    ),
    (
        _CLOSED + _BLOCK + "Could not open '/srv/a.qcow2': Read-only file system",
        "fsck",
        "unsupported configuration: read-only is not supported by this disk bus",
    ),
    (
        _CLOSED + '-blockdev {"driver":"qcow2","file":"libvirt-1-storage"}: Image is not in qcow2 format',
        "qemu-img info",
        "Domain not found: no domain with matching name 'Image is not in qcow2 format'",
    ),
    (
        _CLOSED + "qcow2: Image is corrupt; cannot be opened read/write",
        "qemu-img check",
        "Domain not found: no domain with matching name 'Image is corrupt'",
    ),
    (
        _CLOSED + _BLOCK + "Could not open '/srv/a.qcow2': Invalid argument",
        "direct I/O",
        "Invalid value '0-31' for 'cpuset.cpus': Invalid argument",
    ),
    (_CLOSED + _BLOCK + "Could not open '/srv/a.qcow2': Too many open files", "LimitNOFILE", "too many domains"),
    ("cannot allocate 4096 bytes in file '/srv/a.raw': Disk quota exceeded", "quota -v", "quota exceeded"),
    (
        "cannot write data to file '/var/lib/libvirt/qemu/save/a': No space left on device",
        "df -h",
        "operation failed: no space of names left",
    ),
    (
        "Invalid value '0-31' for 'cpuset.cpus': Invalid argument",
        "AllowedCPUs",
        _CLOSED + _BLOCK + "Could not open '/srv/a.qcow2': Invalid argument",
    ),
    (
        "Unable to write to '/sys/fs/cgroup/machine.slice/cpuset.mems': Permission denied",
        "AllowedCPUs",
        "Unable to write to '/srv/cgroup.img': Permission denied",
    ),
    (
        "operation failed: swtpm died and reported: ",
        "swtpm_setup",
        "Domain not found: no domain with matching name 'swtpm died'",
    ),
    (
        "Could not run '/usr/bin/swtpm_setup'. exitstatus: 1; Check error log 'web-swtpm.log' for details.",
        "swtpm-localca",
        "Could not run '/usr/bin/qemu-img'. exitstatus: 1",
    ),
    (
        "unsupported configuration: Emulator '/usr/bin/qemu-system-x86_64' does not support machine type 'pc-q35-9.2'",
        "older",
        "unsupported configuration: this QEMU does not support 'machine type'",
    ),
    (
        _CLOSED + 'unsupported machine type "pc-q35-10.0"; Use -machine help to list supported machines',
        "older",
        "Domain not found: no domain with matching name 'unsupported machine type'",
    ),
    ("internal error: No more available PCI slots", "fewer GPUs", "internal error: No more available USB ports"),
    (
        "unsupported configuration: guest and host CPU are not compatible: missing features: avx512f",
        "lacks",
        "internal error: missing features element of 'cpu'",
    ),
    (
        "Timed out during operation: cannot acquire state change lock (held by monitor=remoteDispatchDomainCreate)",
        "domjobinfo",
        "Timed out during operation: cannot connect",
    ),
    (
        "Guest agent is not responding: QEMU guest agent is not connected",
        "qemu-guest-agent",
        "the display is not connected",
    ),
    (
        "End of file while reading data: Input/output error",
        "systemctl",
        "Cannot access storage file '/a': Input/output error",
    ),
    ("Unable to read from monitor: Connection reset by peer", "/var/log/libvirt/qemu", "Connection reset by peer"),
    (_CLOSED + "egl: no drm render node available", "/dev/dri", "node available"),
    (
        _CLOSED + _VFIO + "vfio-display-dmabuf: opengl not available",
        "/dev/dri",
        _CLOSED + _VFIO + "error reading device info",
    ),
    (
        _CLOSED + "-vnc 127.0.0.1:0: Failed to find an available port: Address already in use",
        "remote_display_port_max",
        "Failed to bind socket: Address already in use",
    ),
    (
        "authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.manage'",
        "ansible_become",
        "authentication failed",
    ),
    (
        "Cannot check QEMU binary /usr/bin/qemu-system-x86_64: No such file or directory",
        "no QEMU",
        "Cannot access storage file '/srv/qemu-kvm.img': No such file or directory",
    ),
]


@pytest.mark.parametrize(
    ("answer", "part", "twin"), WITH_TWINS, ids=[f"{n}-{row[1]}" for n, row in enumerate(WITH_TWINS)]
)
def test_a_message_has_the_remedy_of_its_subject_and_its_twin_has_not(answer: str, part: str, twin: str) -> None:
    assert part in (hint_for(answer) or "no hint")
    assert part not in (hint_for(twin) or "")


_EXITED = "internal error: process exited while connecting to monitor: "
_PROBING = "internal error: Failed to start QEMU binary /usr/bin/qemu-system-x86_64 for probing: "
_LOADING = "error while loading shared libraries"
_NO_OBJECT = "cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (
            "-drive file=/root/cdi/dcnm-va.iso,format=raw,if=none,id=drive-ua-disk0,cache=none: "
            "Could not open '/root/cdi/dcnm-va.iso': Permission denied",
            "semanage",
        ),
        ('-device ide-hd,bus=ide.0,unit=0,drive=drive-ide0-0-0,bootindex=1: Failed to get "write" lock', "fuser"),
        (
            "-device vfio-pci,id=hostdev0,sysfsdev=/sys/bus/mdev/devices/3465,display=on: vfio 3465: "
            "failed to setup container for group 11: Failed to set iommu for container: Input/output error",
            "IOMMU does not take",
        ),
        (
            "-device vfio-pci,sysfsdev=/sys/bus/mdev/devices/1a99,display=on: vfio 1a99: vfio-display-dmabuf: "
            "opengl not available",
            "/dev/dri",
        ),
        ("failed to initialize KVM: Cannot allocate memory", "free memory"),
        ("unable to open /sys/bus/pci/devices/0000:41:00.0/config: Permission denied", "/dev/vfio"),
        ("resource busy: Lockspace resource '/srv/a.qcow2' is locked", "fuser"),
        ("cannot open path '/var/lib/libvirt/images/gone.qcow2': No such file or directory", "findmnt"),
        ("vfio 0000:12:02.0: error getting device from group 24: No such device", "no such device any more"),
        ("error while loading state for instance 0x0 of device; load of migration failed: Invalid argument", ""),
        ("Could not refresh total sector count: Illegal seek", ""),
        ("Hook script execution failed: Child process unexpected exit status 1", ""),
        (f"{_EXITED}/usr/bin/qemu-system-x86_64: {_LOADING}: libjemalloc.so.2: {_NO_OBJECT}", "ldd"),
        (f"{_PROBING}/usr/bin/qemu-system-x86_64: {_LOADING}: libSDL2_image-2.0.so.0: {_NO_OBJECT}", "ldd"),
        (f"{_PROBING}qemu-kvm: {_LOADING}: libvirt.so.0: cannot stat shared object: Permission denied", "ldd"),
        (f"{_EXITED}qemu-system-x86_64: symbol lookup error: /usr/bin/qemu-kvm: undefined symbol: spice_server", "ldd"),
        (f"{_PROBING}Failed to initialize module: /usr/lib/x86_64-linux-gnu/qemu/ui-gtk.so", "ldd"),
        ("unsupported configuration: Emulator '/usr/bin/kvm-spice' does not support virt type 'kvm'", "/dev/kvm is"),
        ("unsupported configuration: Emulator '/usr/bin/qemu-system-x86_64' does not support virt type 'hvf'", "macOS"),
        ("unsupported configuration: Emulator '/usr/libexec/qemu-kvm' does not support virt type 'qemu'", "emulation"),
        ("invalid argument: KVM is not supported by '/usr/libexec/qemu-kvm' on this host", "/dev/kvm is"),
        ("invalid argument: could not find capabilities for arch=x86_64 domaintype=kvm ", "/dev/kvm is"),
        ("invalid argument: could not find capabilities for domaintype=hvf ", "macOS"),
        ("unsupported configuration: Domain requires KVM, but it is not available. Check that", "/dev/kvm is"),
        ("internal error: Cannot find suitable emulator for x86_64", "no QEMU"),
        ("internal error: no supported architecture for os type 'hvm'", "no QEMU"),
        ("guest and host CPU are not compatible: Host CPU does not provide required features: sse4.1", "CPU lacks"),
        (f"{_EXITED}2017-07-10T23:27:52.339856Z qemu-system-x86_64: CPU feature cmt not found", "CPU lacks"),
        ("vfio 0000:00:14.0: no iommu_group found: No such file or directory", "IOMMU is off"),
        ("-device vfio-pci,host=0000:01:00.1: vfio 0000:01:00.1: group 1 used in multiple address spaces", "<iommu>"),
        (
            "Failed to apply firewall command 'nft -ae insert rule': Error: Could not process rule: x",
            "firewall_backend",
        ),
        ("Unable to find security driver for model selinux", "<seclabel>"),
        ("libvirt:  error : cannot execute binary /usr/bin/qemu-system-x86_64: Permission denied", "noexec"),
        ("libvirt:  error : cannot execute binary /usr/bin/qemu-system-x86_64: Exec format error", "architecture"),
        ("Cannot check QEMU binary /usr/bin/qemu-system-x86_64: Permission denied", "noexec"),
        ("internal error: cannot find any free port in range 5900-65535", "remote_display_port_max"),
        ("unsupported configuration: vhost-net is not supported with this QEMU binary", "modprobe vhost_net"),
        ("internal error: client socket is closed", "systemctl status"),
        ("error creating macvtap interface macvtap0@eno1: No such device", "or interface"),
        ("Cannot access storage file '/srv/domaintype=hvf': No such file or directory", "findmnt"),
        ("can't apply global cortex-a15-arm-cpu.hv-relaxed=on: Property 'cortex-a15.hv-relaxed' not found", ""),
    ],
)
def test_messages_of_public_reports(answer: str, part: str) -> None:
    assert (part in (hint_for(answer) or "")) if part else hint_for(answer) is None


def test_a_warning_beside_the_error_does_not_decide() -> None:
    tainted = "Domain id=2 is tainted: high-privileges; warning: host doesn't support requested feature: CPUID.vfio"
    assert "smartctl" in (hint_for(f"{tainted}; {WITH_TWINS[0][0]}") or "")


def test_the_end_of_a_message_without_end_is_not_looked_at() -> None:
    """The table's patterns are of no more than quadratic cost, and a host can send megabytes."""
    answer = "Storage pool not found: no storage pool with matching name 'x'"
    assert hint_for(answer) is not None
    assert hint_for(f"{'-device ' * 1000}; {answer}") is None
    assert hint_for(f"{answer}; {'[' * 4_000_000}") == hint_for(answer)


def test_an_unknown_answer_has_none() -> None:
    assert hint_for("the moon is full") is None
    assert hint_for("Domain not found: no domain with matching name 'network-vfio: Input/output error'") is None


def test_the_room_is_imported_without_libvirt_jinja_and_pycdlib() -> None:
    rooms = "libvirtd.hypervisor libvirtd.storage domain.render seed live.disks facts.domain_facts"
    code = (
        "import importlib, sys\n"
        f"for name in {rooms!r}.split(): importlib.import_module('vgpuctl.guests.' + name)\n"
        "print([name for name in ('libvirt', 'jinja2', 'pycdlib') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
