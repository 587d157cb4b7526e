# SPDX-License-Identifier: Apache-2.0
"""The remedies for messages of libvirt and QEMU, by subject (what failed) and cause (how)."""

from enum import StrEnum

from vgpuctl.model.distribution import Family, Package, install
from vgpuctl.model.libvirt_units import hint_of


class About(StrEnum):
    """The subject of a message."""

    GPU = "gpu"
    TPM = "tpm"
    FIRMWARE = "firmware"
    MEMORY = "memory"
    NETWORK = "network"
    DISPLAY = "display"
    KVM = "kvm"
    CGROUP = "cgroup"
    DAEMON = "daemon"
    MACHINE = "machine"
    CPU = "cpu"
    AGENT = "agent"
    QEMU = "qemu"
    FIREWALL = "firewall"
    SECURITY = "security"
    POOL = "pool"
    DISK = "disk"


class Cause(StrEnum):
    """How it failed: an errno's text, or a sentence of the program's own."""

    APPARMOR = "apparmor"
    LIBRARY = "library"
    OTHER_ACCELERATOR = "other-accelerator"
    FORMAT = "format"
    NO_GROUP = "no-group"
    SHARED_GROUP = "shared-group"
    LOCKED = "locked"
    NOT_VIABLE = "not-viable"
    UNMANAGED = "unmanaged"
    CONTAINER = "container"
    PINNING = "pinning"
    PREALLOCATION = "preallocation"
    CORRUPT = "corrupt"
    NOT_THE_FORMAT = "not-the-format"
    INACTIVE = "inactive"
    NOT_FOUND = "not-found"
    UNSUPPORTED = "unsupported"
    INCOMPATIBLE = "incompatible"
    STATE_LOCK = "state-lock"
    NOT_CONNECTED = "not-connected"
    ENDED = "ended"
    NO_SLOT = "no-slot"
    TOO_LOW = "too-low"
    RUN = "run"
    ROLE = "role"
    IO = "EIO"
    NO_SPACE = "ENOSPC"
    QUOTA = "EDQUOT"
    DENIED = "EACCES"
    NOT_PERMITTED = "EPERM"
    MISSING = "ENOENT"
    NO_DEVICE = "ENODEV"
    READ_ONLY = "EROFS"
    STALE = "ESTALE"
    NO_MEMORY = "ENOMEM"
    BUSY = "EBUSY"
    INVALID = "EINVAL"
    IN_USE = "EADDRINUSE"
    FILES = "EMFILE"


_DETACHED = (
    "libvirt before 9.7 accepts an unmanaged device only when its driver is vfio-pci; a vendor's VFIO driver "
    "(managed='no') needs libvirt 9.7 or newer on the host"
)
_HOLDER = (
    "another domain or program holds the device; `vgpuctl inspect-host HOST` names its holder, `virsh list --all` "
    "shows the domains, and `vgpuctl repair` rolls back what a killed run left"
)
_GONE_DEVICE = (
    "the host has no such device any more: `vgpuctl check-vm` says what is lost, `vgpuctl repair` makes it again"
)
_VENDOR = "the vendor's driver refused the device: `journalctl -u nvidia-vgpu-mgr` and dmesg on the host say why"
_DYING = "the disk under this file fails: `dmesg` and `smartctl -a` on the host say which; move the VMs away from it"
_PIN = "the guest's memory could not be pinned: check free memory on the host and the memlock limit of libvirtd"
_LIMIT = "libvirt raises the limit of locked memory itself; in a container libvirtd needs CAP_SYS_RESOURCE"
_MEMORY = "a guest with a GPU pins all its memory: free memory on the host or ask for less with --memory"
_HUGE = "libvirt finds no hugetlbfs of the guest's page size: `vgpuctl check-hosts` names the command that mounts it"
_HUGE_FREE = (
    "too few huge pages are free on this node: `grep . /sys/devices/system/node/node*/hugepages/*/free_hugepages`"
    " there; free some or ask for less with --memory"
)
_FULL = "a disk of the host is full: `df -h` there shows which, `virsh pool-info POOL` what a storage pool has left"
_LABEL = (
    "look at the file's owner and mode, and at its folders'; where `getenforce` says Enforcing, a folder other than"
    " /var/lib/libvirt/images needs a label: `semanage fcontext -a -t virt_image_t 'FOLDER(/.*)?'`, then"
    " `restorecon -R FOLDER`"
)
_APPARMOR = (
    "AppArmor stands in the way: `journalctl -k | grep DENIED` on the host names the path; base images belong "
    "into a libvirt pool or /var/lib/libvirt/images"
)
_KVM = "/dev/kvm is missing or refused: enable virtualisation in the firmware, load kvm_intel or kvm_amd"
_FIRMWARE = (
    "the host has no UEFI build that starts a guest without Secure Boot's keys: "
    f"{install([Package.FIRMWARE], Family.UNKNOWN)}"
)
_TPM = (
    "the emulator of its TPM fails: `/var/log/swtpm/libvirt/qemu/` on the host says why; swtpm_setup must be"
    " installed, and the folder of its certificates, /var/lib/swtpm-localca, writable for its user"
)
_SPICE = (
    "the host's QEMU has no SPICE: Debian 13 has it in qemu-system-modules-spice, RHEL 9 and newer do not have it; or "
    "create the VM with --display vnc"
)
_NETWORKS = "`virsh net-list --all` on the host lists its networks; choose one with --network"
_NET_START = "`virsh net-start NETWORK` and `virsh net-autostart NETWORK` on the host bring a network up"
_BRIDGE = (
    "the host has no bridge of this name, or interface: `ip -br link` there lists them; set it up, or choose another"
)
_OVS = "Open vSwitch does not take the port: `ovs-vsctl show` and its service's log on the host say why"
_TUN = "the host cannot make tap devices: `modprobe tun` there, and libvirtd needs CAP_NET_ADMIN"
_POOL = (
    "`virsh pool-list --all` on the host lists its storage pools; `virsh pool-start` and `pool-autostart` bring one up"
)
_LOCK = (
    "another QEMU or qemu-img has the disk open: `fuser -v FILE` on the host, or on each host that mounts it, names it"
)
_MISSING_FILE = "the file is gone, or its storage is not mounted: `findmnt -T FILE` on the host says which"
_MACHINE = "the host's QEMU is older than the one that made the VM: upgrade it, or start the VM where QEMU is as new"
_CPU = (
    "the host's CPU lacks what the guest was given; start it on a host with the CPU that it had, or another CPU model"
)
_CGROUP = (
    "the CPUs or memory nodes of the VM are not in the cgroup of libvirt: `systemctl show machine.slice -p AllowedCPUs`"
)
_IOMMU = (
    "the IOMMU does not take the device: `dmesg | grep -e DMAR -e AMD-Vi` on the host; without interrupt remapping"
    " VFIO refuses devices"
)
_GROUP = "other devices of its IOMMU group have another driver: `vgpuctl inspect-host HOST` lists the group"
_REPLY = (
    "another command holds the domain: `virsh domjobinfo DOMAIN` on the host says which; try again when it has ended"
)
_EXITED = "QEMU ended: its log on the host, /var/log/libvirt/qemu/DOMAIN.log says why, or dmesg"
_NFS = "the NFS server has replaced the file, or maps root to nobody: mount it again, with `no_root_squash` there"
_SWITCHED = "the file system went read-only, most often after errors of its disk: `dmesg` on the host, then fsck"
_RENDER = "the host has no GPU that can render for the display: /dev/dri is empty; create the VM with --display vnc"
_LIBRARY = (
    "QEMU or a program of libvirt lacks a library, or has one of another version: `ldd PROGRAM | grep 'not found'` on"
    " the host names it; bring the packages of QEMU and libvirt to one release"
)
_ACCELERATOR = (
    "the domain was written for another accelerator, such as macOS' hvf, or for emulation, which this QEMU cannot do:"
    " `virsh edit DOMAIN` and set <domain type='kvm'>"
)
_NO_QEMU = f"the host has no QEMU there: {install([Package.QEMU], Family.UNKNOWN)}"

REMEDIES: dict[tuple[About | None, Cause | None], str] = {
    (About.GPU, Cause.NO_GROUP): "the IOMMU is off: switch it on in the firmware (VT-d, AMD-Vi) and with intel_iommu=on"
    " on Intel; `vgpuctl check-hosts` looks at both",
    (About.GPU, Cause.SHARED_GROUP): "devices of one IOMMU group cannot be behind a virtual IOMMU of the guest: "
    "`virsh edit DOMAIN` and remove <iommu>, or give the VM one device of the group",
    (About.GPU, Cause.UNMANAGED): _DETACHED,
    (About.GPU, Cause.CONTAINER): _IOMMU,
    (About.GPU, Cause.BUSY): _HOLDER,
    (About.GPU, Cause.NOT_VIABLE): _GROUP,
    (About.GPU, Cause.PINNING): _PIN,
    (About.GPU, Cause.IO): _VENDOR,
    (About.GPU, Cause.NO_DEVICE): _GONE_DEVICE,
    (About.GPU, Cause.MISSING): _GONE_DEVICE,
    (About.GPU, Cause.NOT_FOUND): _GONE_DEVICE,
    (About.GPU, Cause.NO_MEMORY): _PIN,
    (About.GPU, Cause.NOT_PERMITTED): _IOMMU,
    (About.GPU, Cause.INVALID): _IOMMU,
    (About.GPU, Cause.DENIED): "QEMU's user may not open the device: `ls -l /dev/vfio` on the host; " + _APPARMOR,
    (About.GPU, Cause.UNSUPPORTED): "VFIO is not loaded on the host: `modprobe vfio-pci`, and the IOMMU must be on "
    "(intel_iommu=on, amd_iommu=on)",
    (About.GPU, Cause.INCOMPATIBLE): _RENDER,
    (About.TPM, None): _TPM,
    (About.FIRMWARE, Cause.NOT_FOUND): _FIRMWARE,
    (About.FIRMWARE, Cause.MISSING): "the firmware's build, or the file of the VM's variables in"
    " /var/lib/libvirt/qemu/nvram, is gone: bring it back from a backup, or " + _FIRMWARE,
    (About.FIRMWARE, Cause.UNSUPPORTED): "this QEMU has no serial console for its BIOS, as on RHEL 9 and its kin: "
    "create the VM with --firmware uefi",
    (About.MEMORY, Cause.NOT_FOUND): _HUGE,
    (About.MEMORY, Cause.PREALLOCATION): _HUGE_FREE,
    (About.MEMORY, Cause.NO_SPACE): _HUGE_FREE,
    (About.MEMORY, Cause.PINNING): _LIMIT,
    (About.NETWORK, Cause.NOT_FOUND): _NETWORKS,
    (About.NETWORK, Cause.INACTIVE): _NET_START,
    (About.NETWORK, Cause.NO_DEVICE): _BRIDGE,
    (About.NETWORK, Cause.RUN): _OVS,
    (About.NETWORK, Cause.MISSING): _TUN,
    (About.NETWORK, Cause.NOT_PERMITTED): _TUN,
    (About.NETWORK, Cause.BUSY): "something else holds the interface: `ip -d link show` on the host names its master",
    (About.NETWORK, Cause.UNSUPPORTED): "the host lacks vhost-net: `modprobe vhost_net` there",
    (About.FIREWALL, None): "libvirt cannot set its network's firewall: nft or iptables, as firewall_backend in"
    " /etc/libvirt/network.conf says, must be installed on the host, and `nft list ruleset` must work",
    (About.SECURITY, Cause.NOT_FOUND): "the domain was defined on a host with another of SELinux and AppArmor: "
    "`virsh edit DOMAIN` and remove <seclabel>",
    (About.DISPLAY, Cause.UNSUPPORTED): _SPICE,
    (
        About.DISPLAY,
        Cause.IN_USE,
    ): "all ports for displays are taken, or one is taken by another program: `ss -ltnp` on the"
    " host; remote_display_port_max in its qemu.conf has the range",
    (About.DISPLAY, Cause.INCOMPATIBLE): _RENDER,
    (About.KVM, Cause.NO_MEMORY): _MEMORY,
    (About.KVM, None): _KVM,
    (About.CGROUP, None): _CGROUP,
    (About.MACHINE, Cause.UNSUPPORTED): _MACHINE,
    (About.MACHINE, Cause.NO_SLOT): "the domain has no free PCI slot: give the VM fewer GPUs, NICs or disks",
    (About.CPU, Cause.INCOMPATIBLE): _CPU,
    (About.CPU, Cause.TOO_LOW): "the GPUs' memory windows do not fit the CPU's address width; give the VM fewer GPUs",
    (About.AGENT, Cause.NOT_CONNECTED): "qemu-guest-agent does not run in the guest, or the guest has not booted yet",
    (About.DAEMON, Cause.ENDED): hint_of(""),
    (
        About.DAEMON,
        Cause.ROLE,
    ): "the login may not use libvirt: set ansible_become, or add its user to the group libvirt",
    (About.QEMU, Cause.ENDED): _EXITED,
    (About.QEMU, Cause.RUN): _NO_QEMU,
    (About.QEMU, Cause.NOT_FOUND): _NO_QEMU,
    (About.QEMU, Cause.FORMAT): "the host's QEMU is of another architecture than its kernel: `file PROGRAM` says which",
    (About.QEMU, Cause.DENIED): "libvirt may not run QEMU: `ls -lZ` of the program on the host; its file system must"
    " not be mounted with noexec; " + _APPARMOR,
    (About.QEMU, Cause.MISSING): _NO_QEMU,
    (About.POOL, Cause.NOT_FOUND): _POOL,
    (About.POOL, Cause.INACTIVE): _POOL,
    (About.DISK, Cause.LOCKED): _LOCK,
    (About.DISK, Cause.BUSY): _LOCK,
    (About.DISK, Cause.IO): _DYING,
    (About.FIRMWARE, Cause.IO): _DYING,
    (About.DISK, Cause.DENIED): _LABEL,
    (About.FIRMWARE, Cause.DENIED): _LABEL,
    (About.DISK, Cause.NOT_PERMITTED): _NFS,
    (About.DISK, Cause.MISSING): _MISSING_FILE,
    (
        About.DISK,
        Cause.CORRUPT,
    ): "the image is damaged: `qemu-img check -r leaks FILE` on the host while the VM is off, or a snapshot",
    (
        About.DISK,
        Cause.NOT_THE_FORMAT,
    ): "the file is another format than its pool says: `qemu-img info FILE` on the host",
    (About.DISK, Cause.INVALID): "the file system may not do direct I/O (cache=none): `findmnt -T FILE` on the host",
    (
        About.DISK,
        Cause.FILES,
    ): "libvirtd or QEMU has too many files open: raise LimitNOFILE, or max_files in qemu.conf",
    (None, Cause.APPARMOR): _APPARMOR,
    (None, Cause.LIBRARY): _LIBRARY,
    (None, Cause.OTHER_ACCELERATOR): _ACCELERATOR,
    (None, Cause.STATE_LOCK): _REPLY,
    (None, Cause.NO_SPACE): _FULL,
    (None, Cause.QUOTA): "the user of QEMU has no disk quota left there: `quota -v` and `repquota -a` on the host",
    (None, Cause.NO_MEMORY): _MEMORY,
    (None, Cause.READ_ONLY): _SWITCHED,
    (None, Cause.STALE): _NFS,
    (None, Cause.LOCKED): _LOCK,
}
"""The remedy by subject and cause. None: of every subject, or of every cause; what says more of the two counts."""
BY_THEMSELVES = (Cause.APPARMOR, Cause.LIBRARY, Cause.OTHER_ACCELERATOR)
"""Causes that are what the message is about, whatever it names beside them."""
