# SPDX-License-Identifier: Apache-2.0
"""The identity of an emulated host: its name, accounts, SSH keys, libvirt settings and cards."""

import uuid
from pathlib import Path

from vgpuctl.catalog import board, boards
from vgpuctl.errors import LabError
from vgpuctl_lab.builds import IN_HOST
from vgpuctl_lab.card_links import fabric_config
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import HostShape
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.initramfs import guest_initramfs
from vgpuctl_lab.process import checked, needed_program
from vgpuctl_lab.vgpu_config import vgpu_config

LOGIN_USER = "operator"
LOGIN_HOME = f"/home/{LOGIN_USER}"
_LOGIN_ID = 64000
_NAMESPACE = uuid.UUID("6d5ad3a6-57a2-4b5b-9d0e-0e6f6d6c6162")

# The connection stays on this machine, so the quickest key exchange is enough. The post-quantum one that clients prefer
# costs a second under TCG. OpenSSH brings its own Curve25519, without the assembly of OpenSSL's NIST curves.
KEY_EXCHANGE = "ecdh-sha2-nistp256"
_SSHD_CONFIG = f"""\
# SPDX-License-Identifier: Apache-2.0
Port 22
HostKey /run/lab/sshd/host_key
AuthorizedKeysFile /run/lab/sshd/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
KexAlgorithms {KEY_EXCHANGE}
PrintMotd no
PidFile /run/sshd.pid
MaxSessions 64
MaxStartups 64
Subsystem sftp /usr/lib/openssh/sftp-server
"""

_LIBVIRTD_CONF = """\
# SPDX-License-Identifier: Apache-2.0
unix_sock_group = "libvirt"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
"""

# The emulated host has no AppArmor or SELinux; nested QEMU runs as libvirt-qemu as on any Debian host.
_QEMU_CONF = """\
# SPDX-License-Identifier: Apache-2.0
security_driver = "none"
user = "libvirt-qemu"
group = "libvirt-qemu"
"""

# `open` is routed without firewall rules: libvirt's forty iptables calls for `nat` take half a minute under TCG.
_DEFAULT_NETWORK = """\
<network>
  <name>default</name>
  <bridge name="virbr0" stp="off" delay="0"/>
  <forward mode="open"/>
  <ip address="192.168.122.1" netmask="255.255.255.0">
    <dhcp>
      <range start="192.168.122.2" end="192.168.122.254"/>
    </dhcp>
  </ip>
</network>
"""

_DEFAULT_POOL = """\
<pool type="dir">
  <name>default</name>
  <target>
    <path>/var/lib/libvirt/images</path>
  </target>
</pool>
"""

# Ampere keeps its MIG mode over a reboot.
_UDEV_RULES = 'ACTION=="change", SUBSYSTEM=="pci", ENV{VGPULAB_MIG_MODE}=="?*", RUN+="/run/lab/keep-mig-mode"\n'
# Only what these hosts need: each further library and lookup of a `sudo` costs under TCG.
_NSSWITCH = "".join(f"{name}: files\n" for name in ("passwd", "group", "shadow", "gshadow")) + "hosts: files dns\n"
_PAM_SUDO = "auth required pam_deny.so\naccount required pam_permit.so\nsession required pam_permit.so\n"


def host_uuid(folder: LabFolder, name: str) -> uuid.UUID:
    """The host's SMBIOS UUID: the same at every start of this host in this lab."""
    return uuid.uuid5(_NAMESPACE, f"{folder.path}/{name}")


def ensure_key(path: Path, comment: str) -> str:
    """Make a key pair for the quickest signatures, without a passphrase, once. Returns the public line."""
    public = path.with_name(f"{path.name}.pub")
    if not (path.exists() and public.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        keygen = needed_program("ssh-keygen", package="openssh-client")
        checked(
            [keygen, "-q", "-t", "ecdsa", "-N", "", "-C", comment, "-f", str(path)],
            what="making an SSH key",
            timeout_s=30,
        )
    return public.read_text().strip()


def host_files(
    folder: LabFolder, shape: HostShape, module: Path, shim: Path, nvml: Path, guest: Path, libvirt_cache: Path | None
) -> dict[str, tuple[bytes, int]]:
    """Files under `/run/lab` in the host: content and mode. Files in `etc/` are laid over the host's /etc.

    libvirt_cache: a folder with what libvirt found out about QEMU on an earlier start, None when there was none.
    """
    login_key = ensure_key(folder.private_key, f"vgpuctl lab {folder.path.name}")
    host_key = folder.host(shape.name) / "host_key"
    ensure_key(host_key, shape.name)
    text = {
        "cards": (card_table(shape), 0o644),
        "vgpuConfig.xml": (vgpu_config(shape), 0o644),
        "login-user": (LOGIN_USER, 0o644),
        "login-home": (LOGIN_HOME, 0o644),
        "sshd/sshd_config": (_SSHD_CONFIG, 0o644),
        "sshd/authorized_keys": (login_key + "\n", 0o644),
        "sshd/host_key": (host_key.read_text(), 0o600),
        "libvirt/libvirtd.conf": (_LIBVIRTD_CONF, 0o644),
        "libvirt/qemu.conf": (_QEMU_CONF, 0o600),
        "libvirt/qemu/networks/default.xml": (_DEFAULT_NETWORK, 0o600),
        "libvirt/storage/default.xml": (_DEFAULT_POOL, 0o600),
        "etc/hostname": (shape.name + "\n", 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n127.0.1.1 {shape.name}\n::1 localhost\n", 0o644),
        "etc/resolv.conf": ("nameserver 10.0.2.3\n", 0o644),
        "etc/fstab": ("", 0o644),
        "etc/nsswitch.conf": (_NSSWITCH, 0o644),
        "etc/pam.d/sudo": (_PAM_SUDO, 0o644),
        "etc/pam.d/sudo-i": (_PAM_SUDO, 0o644),
        "etc/udev/rules.d/90-vgpulab.rules": (_UDEV_RULES, 0o644),
        "etc/machine-id": (host_uuid(folder, shape.name).hex + "\n", 0o444),
        "etc/sudoers": (
            'Defaults secure_path="/usr/sbin:/usr/bin:/sbin:/bin"\n'
            "root ALL=(ALL:ALL) NOPASSWD: ALL\n"
            f"{LOGIN_USER} ALL=(ALL:ALL) NOPASSWD: ALL\n",
            0o440,
        ),
        **_accounts(),
    }
    if not Path("/usr/bin/sudo").exists():
        raise LabError(
            "sudo is not installed on this machine, and so not in the emulated host",
            hint="run `make setup`, or apt-get install sudo",
        )
    files = {path: (content.encode(), mode) for path, (content, mode) in text.items()}
    for name in ("boot", "start-libvirtd", "keep-mig-mode"):
        files[name] = ((IN_HOST / name).read_bytes(), 0o755)
    files["sriov-manage"] = (_sriov_manage().encode(), 0o755)
    files["etc/inittab"] = ((IN_HOST / "inittab").read_bytes(), 0o644)
    files["guest/initramfs"] = (guest_initramfs(), 0o644)
    files["guest/idle.img"] = (guest.read_bytes(), 0o644)
    files["vgpulab.ko"] = (module.read_bytes(), 0o644)
    files["driver_link_shim.so"] = (shim.read_bytes(), 0o755)
    for name in ("libnvidia-ml.so.1", "nvidia-smi", "libnvfm.so.1"):
        files[f"nvidia/{name}"] = ((nvml / name).read_bytes(), 0o755)
    if shape.has_fabric_manager:
        files["fabricmanager.cfg"] = (fabric_config(shape.fabric_mode).encode(), 0o644)
    if libvirt_cache and libvirt_cache.is_dir():
        for file in sorted(libvirt_cache.rglob("*")):
            if file.is_file():
                files[f"cache-libvirt/{file.relative_to(libvirt_cache)}"] = (file.read_bytes(), 0o600)
    return files


def _sriov_manage() -> str:
    """The script with the device ids of every board that has VFs for vGPUs, as NVIDIA's lists them."""
    known = [board(one) for one in boards()]
    ids = sorted({one.pci.partition(":")[2] for one in known if one.interface == "sriov-vf"})
    return (IN_HOST / "sriov-manage").read_text().replace("@BOARDS@", " ".join(f"{one}:" for one in ids))


def _accounts() -> dict[str, tuple[str, int]]:
    """This machine's accounts without their passwords, and the login user, who may use sudo and libvirt."""
    people = [line for line in _lines("/etc/passwd") if not line.startswith(f"{LOGIN_USER}:")]
    people.append(f"{LOGIN_USER}:x:{_LOGIN_ID}:{_LOGIN_ID}:vgpuctl lab:{LOGIN_HOME}:/bin/sh")
    groups = []
    for line in (one for one in _lines("/etc/group") if not one.startswith(f"{LOGIN_USER}:")):
        name, password, number, members = line.split(":")[:4]
        if name in ("libvirt", "kvm"):
            members = ",".join(filter(None, (members, LOGIN_USER)))
        groups.append(f"{name}:{password}:{number}:{members}")
    if not any(line.startswith("libvirt:") for line in groups):
        raise LabError(
            "libvirt is not installed on this machine, and so not in the emulated host",
            hint="run `make setup`, or apt-get install libvirt-daemon-system",
        )
    groups.append(f"{LOGIN_USER}:x:{_LOGIN_ID}:")
    # `*` allows no password; unlike `!` it does not lock the account for sshd.
    shadow = [f"{line.partition(':')[0]}:*:19000:0:99999:7:::" for line in people]
    return {
        "etc/passwd": ("\n".join(people) + "\n", 0o644),
        "etc/group": ("\n".join(groups) + "\n", 0o644),
        "etc/shadow": ("\n".join(shadow) + "\n", 0o640),
        "etc/gshadow": ("", 0o640),
    }


def _lines(path: str) -> list[str]:
    return [line for line in Path(path).read_text().splitlines() if line.strip()]
