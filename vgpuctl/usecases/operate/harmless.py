# SPDX-License-Identifier: Apache-2.0
"""Texts of a structured record that are known to be harmless: forms, closed sets and names; every other is free text.

Nothing is searched for secrets here: a text that is not of a known form stays out of a support bundle's records, and
goes to the texts that the user is shown first.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

LEFT_OUT = "(left out)"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,252}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_DEVICE = re.compile(rf"{_PCI}|(?:GPU-)?{_UUID}")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,19}(?:-[a-z0-9_]{1,19}){0,3}")
_DIGITS = re.compile(r"(?:0x)?[0-9a-f]{2,8}")
_LIST = re.compile(r"[0-9,-]{0,400}")
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,6}){1,5}(?:[+~-][A-Za-z0-9.~+-]{1,60})?")
_HARDWARE = re.compile(r"(?:NVIDIA|AMD|Intel|GRID|Tesla|Quadro|MIG|[A-Z][0-9]{1,4})\b[A-Za-z0-9 ./+-]{0,60}")
_PROFILE = re.compile(
    r"[0-9]{1,3}[a-z]\.[0-9]{1,4}gb(?:\+[a-z.]{1,10})?|[A-Z0-9]{1,12}-[0-9]{1,3}[A-Z]?|nvidia-[0-9]{1,5}"
)
_SYSTEM = re.compile(r"(?:Debian|Ubuntu|Rocky|Red Hat|AlmaLinux|Fedora|SUSE|openSUSE|CentOS)[A-Za-z0-9 ./()-]{0,60}")
_SERVICE = re.compile(r"(?:lib)?virt[a-z]{0,20}(?:\.(?:service|socket))?|(?:nvidia|ovn|ovs)-[a-z-]{1,30}(?:\.service)?")
_FACTS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    **dict.fromkeys(("address", "parent", "root", "bridges", "peer", "iommu_group_members"), (_DEVICE,)),
    **dict.fromkeys(("uuid", "mdev_uuid", "vm_uuid", "cluster_uuid", "boot_id", "restored_boot_id"), (_DEVICE,)),
    **dict.fromkeys(("vendor_id", "device_id", "subsystem_id", "vf_device_id", "vf_subsystem_id"), (_DIGITS,)),
    "pci_class": (_DIGITS, _WORD),
    **dict.fromkeys(("local_cpus", "cpus", "cores"), (_LIST,)),
    **dict.fromkeys(("name", "full_name"), (_HARDWARE, _PROFILE, _SERVICE)),
    **dict.fromkeys(("type_id", "current_type", "profile"), (_PROFILE,)),
    **dict.fromkeys(("driver", "sharing", "policy", "state", "peer_kind", "reset_methods", "mig_mode"), (_WORD,)),
    **dict.fromkeys(("selinux", "distribution", "features", "variables_format", "displays"), (_WORD,)),
    **dict.fromkeys(("kernel", "python", "libvirt_version", "qemu_version", "nvidia_driver"), (_VERSION,)),
    "nvml_version": (_VERSION,),
    "operating_system": (_SYSTEM,),
}
"""Texts of facts by the name of their field. A field that is not here is free text, such as the kernel's own lines."""


class Harmless:
    """Keeps what is known to be harmless, and collects the rest as texts by their place.

    commands: the names of all commands. names: of hosts, tenants, VMs and other objects; more are added as they are
    read. texts: what was left out.
    """

    def __init__(self, commands: Collection[str] = ()) -> None:
        self._closed = {str(one) for kind in StrEnum.__subclasses__() for one in kind} | set(commands)
        self._names: set[str] = set()
        self.texts: dict[str, Any] = {}

    def named(self, name: str | None) -> str | None:
        """Take a value that is a name of an object, if it has a name's form."""
        if name is None or not _NAME.fullmatch(name):
            return None if name is None else LEFT_OUT
        self._names.add(name)
        return name

    def known(self, text: str | None) -> str | None:
        """Keep a text that is a member of a closed set, a device, a version or a known name: `acme/web-1` is two."""
        if text is None or text == "":
            return text
        parts = text.split("/")
        is_known = len(parts) <= 2 and all(one in self._names for one in parts)
        forms = (_DEVICE, _VERSION, _PROFILE)
        return text if is_known or text in self._closed or any(one.fullmatch(text) for one in forms) else LEFT_OUT

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keep numbers, truths and known texts of an event's values. A key whose value is free text is left out."""
        return {key: value for key, value in values.items() if _KEY.fullmatch(key) and self._is_known(value)}

    def _is_known(self, value: Any) -> bool:
        """True if nothing in the value, at any depth, is free text."""
        if isinstance(value, Mapping):
            return all(_KEY.fullmatch(str(key)) and self._is_known(one) for key, one in value.items())
        if isinstance(value, (list, tuple)):
            return all(map(self._is_known, value))
        if isinstance(value, str):
            return self.known(value) != LEFT_OUT
        return value is None or isinstance(value, (bool, int, float))

    def facts(self, value: Any, place: str, key: str = "") -> Any:
        """Keep what has the form of its field, at any depth. place: of the value, for the texts that are left out."""
        if isinstance(value, dict):
            plain = {name: one for name, one in value.items() if _KEY.fullmatch(str(name))}
            return {name: self.facts(one, f"{place}.{name}", name) for name, one in plain.items()}
        if isinstance(value, (list, tuple)):
            return [self.facts(one, f"{place}.{number}", key) for number, one in enumerate(value)]
        if not isinstance(value, str) or any(form.fullmatch(value) for form in _FACTS.get(key, ())):
            return value
        self.texts[place] = value
        return LEFT_OUT

    def text(self, place: str, value: Any) -> None:
        """Note free text."""
        if value:
            self.texts[place] = value
