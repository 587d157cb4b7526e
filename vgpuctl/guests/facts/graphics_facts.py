# SPDX-License-Identifier: Apache-2.0
"""The display of a domain, as its XML has it."""

from dataclasses import dataclass

from vgpuctl.errors import GuestError
from vgpuctl.guests.xml_reader import read_xml
from vgpuctl.model.display import DisplayKind

_VIEWED = (DisplayKind.VNC, DisplayKind.SPICE)


@dataclass(frozen=True)
class GraphicsFact:
    """The first display of a domain that a viewer can speak to. index: of its `graphics` element, libvirt's way."""

    kind: DisplayKind
    index: int


def graphics_of(xml: str, *, uuid: str) -> GraphicsFact | None:
    """Find the display of a domain, None without one.

    VNC goes before SPICE. Raises GuestError for the XML of another domain than that of this UUID.
    """
    domain = read_xml(xml)
    if domain.findtext("uuid", "").lower() != uuid.lower():
        raise GuestError(f"domain {domain.findtext('name', '')!a} has another UUID than the VM", hint="run repair")
    kinds = [one.get("type", "") for one in domain.iterfind("devices/graphics")]
    for kind in _VIEWED:
        if kind in kinds:
            return GraphicsFact(kind, kinds.index(kind))
    return None


def has_picture(xml: str) -> bool:
    """True if a domain has an adapter of which a picture can be taken: an emulated one, or a vGPU that is shown."""
    domain = read_xml(xml)
    models = [one.get("type", "none") for one in domain.iterfind("devices/video/model")]
    shown = [one.get("display", "off") for one in domain.iterfind("devices/hostdev")]
    return any(model != "none" for model in models) or "on" in shown
