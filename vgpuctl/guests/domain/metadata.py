# SPDX-License-Identifier: Apache-2.0
"""The `<metadata>` block of our domains: what goes in, and reading it back from a domain's XML.

It is one of the three witnesses (design, section 7), so it says whose domain it is without the store.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from xml.etree import ElementTree

from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import GuestError, UsageError
from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request
from vgpuctl.model.labels import Labels, check_labels, parse_label_key, parse_label_value
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.specs.differing import differing_fields

NAMESPACE = "urn:vgpuctl:domain:1"
_EDITED = "somebody edited the <metadata> of this domain; `virsh edit` it back, or delete and create the VM"


@dataclass(frozen=True)
class GpuMetadata:
    """One lease as written into the domain. device: the function or the mdev's UUID. gpu: its physical function."""

    index: int
    lease: str
    gpu: str
    sharing: str
    profile: str
    device: str


@dataclass(frozen=True)
class DomainMetadata:
    """Our metadata of a domain. request: the VmRequest as JSON text, without defaults and secrets."""

    tenant: str
    vm_name: str
    host: str
    request: str
    gpus: tuple[GpuMetadata, ...] = ()

    def request_fields(self) -> dict[str, object]:
        """Return the request as plain JSON values."""
        try:
            fields = read_strict_json(self.request)
        except JsonRefused as broken:
            raise GuestError(
                f"the metadata of VM {self.vm_name} of tenant {self.tenant} cannot be read: {broken}", hint=_EDITED
            ) from broken
        return cast("dict[str, object]", fields) if isinstance(fields, dict) else {}

    def labels(self) -> Labels:
        """The labels that the VM had when its domain was last defined. Raises GuestError when they cannot be read."""
        written = self.request_fields().get("labels", [])
        try:
            pairs = [(str(key), str(value)) for key, value in written] if isinstance(written, list) else []
            labels = tuple(sorted({parse_label_key(key): parse_label_value(value) for key, value in pairs}.items()))
            check_labels(labels, what="it")
        except (UsageError, TypeError, ValueError) as broken:
            raise GuestError(
                f"the labels of VM {self.vm_name} of tenant {self.tenant} in its metadata cannot be read", hint=_EDITED
            ) from broken
        return labels

    def asked_gpus(self) -> tuple[GpuRequest, ...]:
        """The requests of the VM, one for each GPU in their order. Raises GuestError when they cannot be read."""
        written = self.request_fields().get("gpus", [])
        try:
            texts = [one["text"] for one in written] if isinstance(written, list) else []
            return placed_gpus([parse_gpu_request(text) for text in texts])
        except (UsageError, TypeError, KeyError, AttributeError) as broken:
            raise GuestError(
                f"the GPUs of VM {self.vm_name} of tenant {self.tenant} in its metadata cannot be read", hint=_EDITED
            ) from broken


def domain_metadata(vm: Vm, leases: Sequence[Lease]) -> DomainMetadata:
    """Build the block of one VM, leases in the order of their index."""
    return DomainMetadata(
        tenant=vm.request.tenant,
        vm_name=vm.request.name,
        host=vm.host,
        request=request_json(vm.request),
        gpus=tuple(
            GpuMetadata(
                index=lease.index,
                lease=lease.id,
                gpu=lease.share.gpu,
                sharing=lease.share.sharing.value,
                profile=lease.share.profile,
                device=lease.share.device,
            )
            for lease in sorted(leases, key=lambda lease: lease.index)
        ),
    )


def request_json(request: VmRequest) -> str:
    """Write what a request says beside the defaults, as one line of ASCII JSON with sorted keys.

    Any user of libvirt on the host can read a domain's XML, and user-data often holds passwords: of the documents
    only a digest is written.
    """
    return json.dumps(differing_fields(request), sort_keys=True, separators=(",", ":"))


def parse_metadata(xml: str) -> DomainMetadata | None:
    """Read our block from a domain's XML; None when the domain is not ours.

    Raises GuestError when the block is there but lacks a field.
    """
    return find_metadata(read_xml(xml))


def find_metadata(domain: ElementTree.Element) -> DomainMetadata | None:
    """Read our block from a parsed domain; see parse_metadata."""
    block = domain.find(f"metadata/{{{NAMESPACE}}}vm")
    if block is None:
        return None
    name = domain.findtext("name", "?")
    return DomainMetadata(
        tenant=_attribute(block.attrib, "tenant", name),
        vm_name=_attribute(block.attrib, "name", name),
        host=_attribute(block.attrib, "host", name),
        request=block.findtext(f"{{{NAMESPACE}}}request", "{}"),
        gpus=tuple(_gpu(gpu.attrib, name) for gpu in block.findall(f"{{{NAMESPACE}}}gpu")),
    )


def _gpu(attributes: Mapping[str, str], domain: str) -> GpuMetadata:
    index = _attribute(attributes, "index", domain)
    number = read_whole(index)
    if number is None:
        raise GuestError(f"the metadata of domain {domain} has the GPU index {index!r}, which is no number")
    return GpuMetadata(
        index=number,
        lease=_attribute(attributes, "lease", domain),
        gpu=_attribute(attributes, "gpu", domain),
        sharing=_attribute(attributes, "sharing", domain),
        profile=_attribute(attributes, "profile", domain),
        device=_attribute(attributes, "device", domain),
    )


def _attribute(attributes: Mapping[str, str], name: str, domain: str) -> str:
    value = attributes.get(name)
    if value is None:
        raise GuestError(
            f"the metadata of domain {domain} has no {name!r}",
            hint=_EDITED,
        )
    return value
