# SPDX-License-Identifier: Apache-2.0
"""Other names of a table's keys: the names of its flags, and words that users of other tools write.

The name of a flag is a key too, also of a field inside a section: `base_image: debian-12` says what
`disk: {base_image: debian-12}` says. Flags that name a file are left out, because the key holds the text itself, or
because a secret would be looked for there. The other words are only suggested.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from vgpuctl.specs.field import Field, Table

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "vcpus": ("cpu", "cpus", "vcpu", "core", "cores"),
    "memory": ("mem", "ram", "memory_mib", "memory_mb", "memory_gb"),
    "gpus": ("vgpu", "vgpus", "gpu_profile", "gpu_type"),
    "disk.base_image": ("image", "base", "template", "os_image", "source_image"),
    "disk.size": ("disk_size", "disk_gb", "root_disk"),
    "disk.pool": ("storage", "storage_pool"),
    "data_disks": ("disks", "volumes", "volume", "extra_disks"),
    "network": ("net", "bridge", "vnet", "subnet"),
    "nics": ("interfaces", "networks", "network_interfaces"),
    "security_groups": ("sg", "sgs", "firewall"),
    "tenant": ("project", "namespace", "owner"),
    "host": ("node", "hypervisor", "target_host"),
    "os": ("os_type", "os_variant", "operating_system", "guest_os"),
    "firmware": ("bios", "uefi", "efi"),
    "secure_boot": ("secureboot",),
    "tpm": ("vtpm",),
    "cloud_init.ssh_authorized_keys": ("ssh_keys", "authorized_keys", "public_key", "public_keys", "sshkeys"),
    "cloud_init.user_data": ("userdata", "cloud_config"),
    "cloud_init.hostname": ("fqdn",),
    "ssh_keys": ("ssh_key", "ssh_authorized_keys", "authorized_keys"),
    "autostart": ("onboot", "auto_start"),
    "restart": ("restart_policy",),
    "duration": ("ttl", "lifetime", "timeout", "expires"),
    "group": ("affinity", "anti_affinity", "server_group"),
    "require_labels": ("node_selector",),
    "labels": ("tags", "tag", "metadata"),
    "quotas": ("limits", "quota"),
    "guaranteed": ("reserved", "guarantees"),
    "vms": ("virtual_machines", "servers", "instances"),
    "cidr": ("range", "address_range", "ip_range"),
    "min": ("minimum", "min_size", "min_nodes"),
    "max": ("maximum", "max_size", "max_nodes"),
    "external_network": ("outside", "provider_network"),
    "kind": ("mode", "sharing"),
    "shares": ("profiles", "mdevs"),
    "geometry": ("mig_devices", "mig"),
    "virtual_functions": ("vfs", "num_vfs", "sriov_numvfs"),
    "kernel_arguments": ("cmdline", "kernel_args"),
}
"""Words that are suggested, by the key that they mean."""


def plain_name(written: str) -> str:
    """A key with `_` where it was written with `-`."""
    return written.replace("-", "_")


def flag_name(field: Field) -> str:
    """The name of a field's flag as a key: `base_image` of `--base-image`; empty without a flag."""
    return plain_name((field.flag or "").removeprefix("--"))


def fields_by_flag(table: Table[Any]) -> dict[str, Field]:
    """The fields that the names of their flags stand for in a file."""
    found: dict[str, list[Field]] = {}
    for field in table.fields:
        if field.flag is not None and not field.names_file and field.metavar != "FILE":
            found.setdefault(flag_name(field), []).append(field)
    return {name: fields[0] for name, fields in found.items() if len(fields) == 1 and fields[0].key != name}


def suggest_key(written: str, known: Iterable[str], table: Table[Any] | None = None, section: str = "") -> str | None:
    """The key that was probably meant, None where none is near.

    known: keys that may stand there. table: whose fields they are; section: the key of its section that they are in.
    """
    meant = {key: key for key in known}
    inner = () if table is None or section else table.fields
    places = {*meant, *(field.key for field in inner)}
    for key, words in SYNONYMS.items():
        place = key.removeprefix(f"{section}.") if section else key
        if place in places:
            meant.update({word: place for word in words if word not in meant})
    for field in inner:
        outer, _, last = field.key.rpartition(".")
        for word in (flag_name(field), f"{outer}_{last}", last):
            if word:
                meant.setdefault(word, field.key)
    name = plain_name(written).lower()
    if name in meant:
        return meant[name]
    near = difflib.get_close_matches(name, meant, n=1)
    return meant[near[0]] if near else None
