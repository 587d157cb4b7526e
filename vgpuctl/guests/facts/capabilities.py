# SPDX-License-Identifier: Apache-2.0
"""Capabilities of a host's libvirt: Hyper-V enlightenments that it reports, flags that its version knows."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translate
from vgpuctl.guests.xml_reader import read_xml
from vgpuctl.logs import timed

# libvirt 8.9.0 (NEWS): before, the flag is refused.
_TPM_FLAGS_SINCE = 8_009_000
_DISPLAY_CLASS = "0x03"


class Connected(Protocol):
    """An open connection to libvirt of a host."""

    host: str

    @property
    def connection(self) -> Any:
        """The virConnect."""


def hyperv_features(connected: Connected, *, kvm: bool) -> frozenset[str] | None:
    """Ask which Hyper-V enlightenments a guest on q35 can have; None where libvirt does not say."""
    library, what = libvirt_module(), f"ask libvirt on {connected.host} for its domain capabilities"
    try:
        with timed("libvirt-call", action=what):
            xml = connected.connection.getDomainCapabilities(None, "x86_64", "q35", "kvm" if kvm else "qemu", 0)
    except library.libvirtError as refused:
        # libvirt's test driver has no capabilities.
        if error_code(refused) == library.VIR_ERR_NO_SUPPORT:
            return None
        raise translate(refused, what) from refused
    return reported_hyperv(xml)


def read_capabilities(connected: Connected) -> dict[str, str | None]:
    """Read what libvirt says of the host and of guests on it, by the question; None where it has no answer.

    Only PCI devices of the display class (03) are described.
    """
    library, connection = libvirt_module(), connected.connection

    def asked(what: str, ask: Callable[[], str]) -> str | None:
        try:
            with timed("libvirt-call", action=f"ask libvirt on {connected.host} for its {what}"):
                return ask()
        except library.libvirtError:
            # libvirt's test driver, and a driver that is not there.
            return None

    found = {
        "version": asked("version", lambda: str(connection.getLibVersion())),
        "capabilities": asked("capabilities", connection.getCapabilities),
    }
    for kind in ("kvm", "qemu"):
        found[f"domain-capabilities {kind}"] = asked(
            "domain capabilities", partial(connection.getDomainCapabilities, None, "x86_64", "q35", kind, 0)
        )
    try:
        devices = connection.listAllDevices(library.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV)
    except library.libvirtError:
        devices = []
    for device in devices:
        xml = asked("node devices", partial(device.XMLDesc, 0))
        if xml is not None and (read_xml(xml).findtext("capability/class") or "").startswith(_DISPLAY_CLASS):
            found[f"node-device {device.name()}"] = xml
    return found


def reported_hyperv(xml: str) -> frozenset[str] | None:
    """Read the enlightenments in domain capabilities; None where libvirt (before 9.0) reports none.

    Raises GuestError for XML that cannot be read.
    """
    hyperv = read_xml(xml).find("features/hyperv")
    if hyperv is None:
        return None
    return frozenset(value.text or "" for value in hyperv.iterfind("enum[@name='features']/value"))


def undefine_state_flags(version: int, *, keeps_state: bool) -> int:
    """Flags of undefine for UEFI variables and a TPM. version: of libvirt on the host, 9000000 for 9.0.0."""
    library = libvirt_module()
    has_tpm_flags = version >= _TPM_FLAGS_SINCE
    if keeps_state:
        flags = library.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
        return int(flags | library.VIR_DOMAIN_UNDEFINE_KEEP_TPM if has_tpm_flags else flags)
    flags = library.VIR_DOMAIN_UNDEFINE_NVRAM
    return int(flags | library.VIR_DOMAIN_UNDEFINE_TPM if has_tpm_flags else flags)
