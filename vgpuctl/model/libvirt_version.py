# SPDX-License-Identifier: Apache-2.0
"""Abilities of a libvirt version that placing depends on."""

_VENDOR_VFIO_SINCE = (9, 7)
VENDOR_VFIO_REMEDY = (
    "install libvirt 9.7 or newer on the host, or boot the distribution's own kernel instead of a newer one (HWE, "
    "backports)"
)


def version_of(text: str | None) -> tuple[int, ...]:
    """Read `9.0.0` as (9, 0, 0); return () for any other text."""
    parts = (text or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def takes_vendor_vfio(version: str | None) -> bool:
    """True if libvirt gives a VM a VF that stays on its vendor's driver; an unknown version counts as one that does.

    Source: libvirt NEWS, 9.7.0: VFIO variant drivers with managed='no'.
    """
    known = version_of(version)
    return not known or known >= _VENDOR_VFIO_SINCE


def refuse_vendor_vfio(version: str | None) -> str | None:
    """Say why the host's libvirt cannot start a VM with such a VF; None when it can."""
    if takes_vendor_vfio(version):
        return None
    return f"libvirt {version} cannot give a VM a VF that stays on the driver nvidia (vf-profile); 9.7 and newer can"
