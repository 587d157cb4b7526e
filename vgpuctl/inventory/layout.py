# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu` of a host: its declared layout, schema version 1 (docs/layout.md).

As every variable it comes whole from the place that counts most; mappings of several places are not mixed.
"""

import re

from vgpuctl import catalog
from vgpuctl.errors import UsageError
from vgpuctl.inventory.layout_kinds import read_kind
from vgpuctl.inventory.layout_network import read_network
from vgpuctl.inventory.tree import VariableSet
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout
from vgpuctl.model.units import parse_mib
from vgpuctl.specs.value import Value

VARIABLE = "vgpu"
VERSION = 1

_ADDRESS = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])")
_LONG_ADDRESS = re.compile(r"0000([0-9a-f]{4}:.*)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+")
_UNIT_ENDING = re.compile(r".+\.(?:service|socket|timer|target)")
_ARGUMENT = re.compile(r"[^\s\"']+(?:\"[^\"]*\")?")
_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_KEYS = ("version", "gpus", "kernel_arguments", "stop_services", "hugepages", "uplinks", "network")


def layout_of(host: str, variables: VariableSet) -> HostLayout | None:
    """Read a host's layout, None when the host has no variable `vgpu`.

    Raises InventoryError that names file, line, key and host for an unknown key, a wrong type, an unknown version, and
    for entries that contradict each other.
    """
    content = variables.values.get(VARIABLE)
    if content is None:
        return None
    value = Value(content, variables.origins[VARIABLE], host)
    entries = value.mapping()
    if "version" not in entries:
        raise value.refuse("has no 'version'", hint=f"begin it with `version: {VERSION}`")
    version = entries["version"].whole(0, 1 << 31)
    if version != VERSION:
        raise entries["version"].refuse(f"is {version}", hint=f"this vgpuctl reads version {VERSION}")
    entries = value.fields(_KEYS)
    return HostLayout(
        gpus=_read_gpus(entries["gpus"]) if "gpus" in entries else (),
        kernel_arguments=_read_arguments(entries["kernel_arguments"]) if "kernel_arguments" in entries else (),
        stop_services=_read_services(entries["stop_services"]) if "stop_services" in entries else (),
        hugepages=_read_hugepages(entries["hugepages"]) if "hugepages" in entries else (),
        uplinks=_read_uplinks(entries["uplinks"]) if "uplinks" in entries else (),
        version=version,
        origin=str(value.origin),
        network=read_network(entries["network"], host) if "network" in entries else None,
    )


def _read_gpus(value: Value) -> tuple[GpuLayout, ...]:
    found: dict[GpuMatch, Value] = {}
    layouts: list[GpuLayout] = []
    for entry in value.items():
        keys = entry.mapping()
        for required in ("match", "kind"):
            if required not in keys:
                raise entry.refuse(f"has no {required!r}")
        match = read_match(keys["match"])
        if match in found:
            raise keys["match"].refuse(
                f"is for {match}, as is the entry at {found[match].origin}", hint="one entry per match"
            )
        found[match] = keys["match"]
        layouts.append(GpuLayout(match, read_kind(entry), str(entry.origin)))
    return tuple(layouts)


def read_match(value: Value) -> GpuMatch:
    """The GPUs of an entry."""
    if value.content == "all":
        return GpuMatch()
    if isinstance(value.content, str):
        raise value.refuse(
            f"is {value.content!r}", hint='write `all`, or {address: "0000:41:00.0"}, {uuid: GPU-…} or {board: A40}'
        )
    entries = value.fields(("address", "uuid", "board"))
    if len(entries) != 1:
        raise value.refuse(
            f"has {' and '.join(entries) or 'no key'}",
            hint="give one of address, uuid and board, or write `match: all`",
        )
    if "address" in entries:
        return GpuMatch(address=_read_address(entries["address"]))
    if "uuid" in entries:
        uuid = entries["uuid"].text()
        if not _UUID.fullmatch(uuid):
            raise entries["uuid"].refuse(f"is {uuid!r}, not a GPU's UUID", hint="`vgpuctl list-gpus --json` shows them")
        return GpuMatch(uuid="GPU-" + uuid[4:].lower())
    board = entries["board"].text()
    if not _PCI_ID.fullmatch(board.lower()) and not catalog.boards_named(board):
        raise entries["board"].refuse(
            f"is {board!r}, which no board of the catalogue is called",
            hint="write a model such as A40 or H100, or vendor:device such as 10de:2235",
        )
    return GpuMatch(board=board)


def _read_address(value: Value) -> str:
    text = value.text(hint='quote it: "0000:41:00.0" (YAML reads some addresses as numbers)').lower()
    match = _ADDRESS.fullmatch(_LONG_ADDRESS.sub(r"\1", text))
    if match is None:
        raise value.refuse(f"is {text!r}, not a PCI address", hint='write "0000:41:00.0"')
    return f"{match[1] or '0000'}:{match[2]}"


def _read_arguments(value: Value) -> tuple[str, ...]:
    arguments = value.texts()
    for argument, item in zip(arguments, value.items(), strict=True):
        if not _ARGUMENT.fullmatch(argument):
            raise item.refuse(f"is {argument!r}", hint="write one kernel argument per item, such as iommu=pt")
    return arguments


def _read_services(value: Value) -> tuple[str, ...]:
    names: list[str] = []
    for text, item in zip(value.texts(), value.items(), strict=True):
        name = text if _UNIT_ENDING.fullmatch(text) else f"{text}.service"
        if not _UNIT.fullmatch(name) or name.startswith("-"):
            raise item.refuse(f"is {text!r}, not the name of a systemd unit")
        if name in names:
            raise item.refuse(f"is {name!r} a second time")
        names.append(name)
    return tuple(names)


def _read_hugepages(value: Value) -> tuple[tuple[int, int], ...]:
    sizes: dict[int, int] = {}
    for name, count in value.mapping().items():
        try:
            size_kib = parse_mib(name, what="the size") * 1024
        except UsageError as exc:
            raise count.refuse(f"is for pages of {name!r}", hint=exc.hint) from exc
        if size_kib & (size_kib - 1):
            raise count.refuse(f"is for pages of {name!r}", hint="a page size is a power of two: 2MiB or 1GiB")
        if size_kib in sizes:
            raise count.refuse("is for a page size that another key gives too")
        sizes[size_kib] = count.whole(0, 1 << 30)
    return tuple(sorted(sizes.items()))


def _read_uplinks(value: Value) -> tuple[tuple[str, str], ...]:
    uplinks: dict[str, str] = {}
    for network, interface in value.mapping().items():
        uplinks[network] = interface.text()
        if not _INTERFACE.fullmatch(uplinks[network]):
            raise interface.refuse(f"is {uplinks[network]!r}, not the name of a network interface")
    return tuple(sorted(uplinks.items()))
