# SPDX-License-Identifier: Apache-2.0
"""Versions of what runs on the host: operating system, kernel, libvirt, QEMU."""

import hashlib
import hmac
import re
from typing import Dict, Optional, Sequence, Tuple

from vgpuctl.agent import program_versions
from vgpuctl.agent.host import Host
from vgpuctl.agent.kernel_files import LARGEST_TEXT_BYTES, unpacked
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.os_release import read_os_release

_TIMEOUT_S = 15.0
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_LIBVIRT = ("libvirtd", "virtqemud", "virsh")
_QEMU = ("qemu-system-x86_64", "qemu-kvm", "qemu-system-aarch64")
_OPTION = re.compile(r"^CONFIG_(\w+)=(\w)", re.MULTILINE)


def read_operating_system(host: Host) -> str:
    """Return the distribution's name for people, `Linux` when os-release does not say."""
    return _read_release(host).get("PRETTY_NAME", "Linux")


def read_distribution(host: Host) -> Tuple[str, ...]:
    """Return os-release's ID, then those of ID_LIKE, the nearest first; empty without os-release."""
    release = _read_release(host)
    return tuple(dict.fromkeys((release.get("ID", ""), *release.get("ID_LIKE", "").split()))) if release else ()


def _read_release(host: Host) -> Dict[str, str]:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = host.read_optional(path)
        if text is not None:
            return read_os_release(text)
    return {}


def read_machine_id(host: Host) -> Optional[str]:
    """Return a digest of the machine-id, None where there is none (also empty, or `uninitialized` in early boot).

    The id itself must not leave the machine: machine-id(5) asks for a keyed hash with a key of the application.
    """
    text = (host.read_optional("/etc/machine-id") or "").strip()
    if not _MACHINE_ID.fullmatch(text):
        return None
    return hmac.new(b"vgpuctl host identity", text.encode(), hashlib.sha256).hexdigest()[:32]


def read_kernel(host: Host) -> str:
    """Return the running kernel's release."""
    return host.read("/proc/sys/kernel/osrelease").strip()


def read_iommufd_driver(host: Host) -> Optional[bool]:
    """Tell whether the running kernel was built with CONFIG_IOMMUFD_DRIVER, None where its configuration is not there.

    An option that has no prompt is not named at all where it is off.
    """
    release = read_kernel(host)
    for path in (f"/boot/config-{release}", f"/lib/modules/{release}/config", "/proc/config.gz"):
        if not host.exists(path):
            continue
        options = dict(_OPTION.findall(unpacked(host.read_head(path, LARGEST_TEXT_BYTES))))
        if options:
            return options.get("IOMMUFD_DRIVER") == "y"
    return None


def read_libvirt_version(host: Host) -> Optional[str]:
    """Return libvirt's version, None when it is not installed."""
    return _first_version(host, _LIBVIRT)


def read_qemu_version(host: Host) -> Optional[str]:
    """Return QEMU's version, None when it is not installed."""
    return _first_version(host, _QEMU)


def _first_version(host: Host, programs: Sequence[str]) -> Optional[str]:
    """Ask the first program that is there; the answer is kept, as starting QEMU is slow."""
    for program in programs:
        path = host.find_program(program)
        if path is None:
            continue
        kept = host.versions.get(path) or (program_versions.recall(path) if host.keeps_notes else None)
        if kept:
            host.versions[path] = kept
            return kept
        try:
            done = host.run([program, "--version"], timeout_s=_TIMEOUT_S)
        except Problem:
            continue
        match = _VERSION.search(done.output)
        if done.status == 0 and match:
            host.versions[path] = match[0]
            if host.keeps_notes:
                program_versions.remember(path, match[0])
            return match[0]
    return None
