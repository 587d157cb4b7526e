# SPDX-License-Identifier: Apache-2.0
"""The libvirt of a replayed capture: what the captured one said of itself, and a refusal of every change."""

import struct
from collections.abc import Mapping

from vgpuctl_lab.simulated.libvirt_wire import Packet, Procedure, read_text, text

_CHANGES = (
    *(Procedure.DOMAIN_CREATE, Procedure.DOMAIN_CREATE_XML, Procedure.DOMAIN_CREATE_WITH_FLAGS),
    *(Procedure.DOMAIN_DEFINE_XML, Procedure.DOMAIN_DEFINE_XML_FLAGS),
    *(Procedure.STORAGE_VOL_CREATE_XML, Procedure.STORAGE_VOL_CREATE_XML_FROM, Procedure.STORAGE_VOL_UPLOAD),
    *(Procedure.STORAGE_VOL_DELETE, Procedure.DOMAIN_MIGRATE_PREPARE3_PARAMS),
)


def answer_of(captured: Mapping[str, str | None], packet: Packet) -> Packet | None:
    """Return the captured answer to a call, or the refusal of a change; None for what the lab's libvirt answers."""
    if packet.procedure in _CHANGES:
        return packet.error("this host replays a capture: it answers readings and takes no change")
    if packet.procedure == Procedure.CONNECT_GET_LIB_VERSION:
        version = captured.get("version")
        return packet.reply(struct.pack(">Q", int(version))) if version and version.isdecimal() else None
    said = None
    if packet.procedure == Procedure.CONNECT_GET_CAPABILITIES:
        said = captured.get("capabilities")
    elif packet.procedure == Procedure.CONNECT_GET_DOMAIN_CAPABILITIES:
        said = captured.get(f"domain-capabilities {_kind_of(packet.body)}")
    return None if said is None else packet.reply(text(said))


def _kind_of(body: bytes) -> str:
    """Return the kind of hypervisor that domain capabilities are asked of: the fourth of four texts that may lack."""
    found, offset = "", 0
    for _ in range(4):
        (is_there,) = struct.unpack_from(">I", body, offset)
        offset += 4
        found = ""
        if is_there:
            found, offset = read_text(body, offset)
    return found
