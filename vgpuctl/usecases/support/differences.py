# SPDX-License-Identifier: Apache-2.0
"""Differences of two specifications, field by field, in words; contents of files are never shown."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

from vgpuctl.model.vm import VmRequest

_NOT_SHOWN = frozenset({"user_data", "network_config", "ssh_authorized_keys"})


def difference(field: str, there: object, wanted: object) -> Iterator[str]:
    """One line for a field that differs, `memory_mib: 2048 there, 4096 wanted`, or for each differing part of it."""
    if there == wanted:
        return
    if is_dataclass(there) and type(there) is type(wanted):
        for part in fields(there):
            yield from difference(f"{field}.{part.name}", getattr(there, part.name), getattr(wanted, part.name))
    elif field.rpartition(".")[2] in _NOT_SHOWN:
        yield f"{field}: differs"
    else:
        yield f"{field}: {_words(there)} there, {_words(wanted)} wanted"


def vm_differences(there: VmRequest, wanted: VmRequest) -> list[str]:
    """One line per field that differs: `memory_mib: 2048 there, 4096 wanted`."""
    there = replace(there, cloud_init=there.cloud_init.with_known_digests(wanted.cloud_init))
    lines: list[str] = []
    for field in (
        "gpus",
        "vcpus",
        "memory_mib",
        "hugepages_kib",
        "disk",
        "network",
        "firmware",
        "cloud_init",
        "direct_kernel",
        "autostart",
        "priority",
        "preemptible",
        "security_groups",
        "bandwidth_mbps",
        "duration_s",
    ):
        before, after = getattr(there, field), getattr(wanted, field)
        if field == "gpus":
            before, after = (tuple(gpu.text for gpu in gpus) for gpus in (before, after))
        lines += difference(field, before, after)
    if wanted.host is not None and there.host != wanted.host:
        lines += difference("host", there.host, wanted.host)
    return lines


def _words(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(_words, value))
    if is_dataclass(value):
        parts = ((part.name, getattr(value, part.name)) for part in fields(value) if part.name not in _NOT_SHOWN)
        return ", ".join(f"{name} {_words(part)}" for name, part in parts if part not in (None, ()))
    return str(value)
