# SPDX-License-Identifier: Apache-2.0
"""The question of the capacity page: how many more VMs of one kind fit, from the store alone."""

import re
from collections.abc import Mapping

from vgpuctl.catalog import boards_with_type, profile_name, read_gpu_request
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.times import parse_duration
from vgpuctl.model.units import parse_mib
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.placement.capacity import Capacity, capacity
from vgpuctl.usecases.support.services import Services

_MOST_VCPUS = 512
_TYPE_AFTER_MODEL = re.compile(r"[A-Za-z0-9 ._+-]{1,120}")


def read_request(given: Mapping[str, str]) -> VmRequest | None:
    """The VM that a form describes: gpu, vcpus, memory, for, tenant; None while no GPU is named. Raises UsageError."""
    has = {name: value.strip() for name, value in given.items() if value.strip()}
    if "gpu" not in has:
        return None
    vcpus = has.get("vcpus", "2")
    if not (vcpus.isascii() and vcpus.isdigit() and len(vcpus) < 5 and 1 <= int(vcpus) <= _MOST_VCPUS):
        raise UsageError(f"vCPUs {vcpus[:20]!r} cannot be used", hint=f"give a number from 1 to {_MOST_VCPUS}")
    return VmRequest(
        name="capacity",
        tenant=has.get("tenant", ""),
        gpus=_gpus(has["gpu"]),
        vcpus=int(vcpus),
        memory_mib=parse_mib(has.get("memory", "2GiB"), what="memory"),
        duration_s=parse_duration(has["for"], what="for") if "for" in has else None,
    )


def _gpus(text: str) -> tuple[GpuRequest, ...]:
    """Several requests have a space between them. A type's name with its model before it has spaces too."""
    whole = profile_name(text) if _TYPE_AFTER_MODEL.fullmatch(text) else None
    if whole is not None and boards_with_type(whole.name):
        return (read_gpu_request(str(whole)),)
    return tuple(read_gpu_request(one) for one in text.split())


def count_more(services: Services, request: VmRequest) -> Capacity:
    """Count from the store. Raises NotFound, InventoryError and UsageError as capacity does."""
    return capacity(services, request, may_contact=False)
