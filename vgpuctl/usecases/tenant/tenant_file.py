# SPDX-License-Identifier: Apache-2.0
"""Reading an onboarding file, schema version 1 (docs/onboarding.md); every refusal names file and line."""

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory.layout_value import Value
from vgpuctl.inventory.yaml_document import read_document
from vgpuctl.model.network import Backend, NetworkRequest, parse_address, parse_cidr
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import VmRequest, check_name
from vgpuctl.model.vpc import (
    ANYWHERE,
    Contact,
    DirectConnect,
    FloatingIp,
    Gateway,
    LoadBalancer,
    PeeringSpec,
    PortForward,
    Protocol,
    Rule,
    SecurityGroup,
    VpcSpec,
)
from vgpuctl.model.vpc_text import parse_ports, parse_source
from vgpuctl.quota.resources import parse_amount, parse_resource
from vgpuctl.usecases.support.secret_file import SecretFiles
from vgpuctl.usecases.vm.vm_file import VmFile, read_entry

VERSION = 1
_KEYS = (
    *("version", "tenant", "contact", "pools", "quotas", "guaranteed", "priority", "networks", "security_groups"),
    *("gateway", "load_balancers", "floating_ips", "port_forwards", "peerings", "ssh_keys", "secrets", "vms"),
)
_NETWORK_KEYS = ("cidr", "dns", "isolated", "backend", "host", "direct_connect")
_BALANCER_KEYS = ("network", "protocol", "port", "vms", "vm_port", "interval_s", "timeout_s", "failures")


def read_tenant_file(path: Path, *, default_backend: Backend, secrets_from: Sequence[Path] = ()) -> TenantFile:
    """Read one tenant's file. default_backend: of networks that name none.

    secrets_from: folders of the operator in which it may name secrets, beside its own folder.
    Raises InventoryError with file and line for unknown keys, wrong values and secrets that may not be read.
    """
    document = read_document(str(path))
    if document.warnings:
        raise InventoryError(document.warnings[0], hint="write each key once")
    root = Value(document.data, document.origin(), "", name="file", subject="this file")
    entries = root.mapping()
    if "version" not in entries:
        raise root.refuse("has no 'version'", hint=f"begin it with `version: {VERSION}`")
    version = entries["version"].whole(0, 1 << 31)
    if version != VERSION:
        raise entries["version"].refuse(f"is {version}", hint=f"this vgpuctl reads version {VERSION}")
    entries = root.fields(_KEYS, required=("tenant",))
    tenant = _name(entries["tenant"])
    return TenantFile(
        tenant,
        _amounts(entries.get("quotas")),
        _amounts(entries.get("guaranteed")),
        tuple(_name(item) for item in _items(entries.get("pools"))),
        tuple(
            _network(value, name, tenant, default_backend=default_backend)
            for name, value in _mapping(entries.get("networks"))
        ),
        tuple(_objects(entries)),
        tuple(_vms(entries, tenant, SecretFiles(path, secrets_from))),
    )


def _network(value: Value, name: str, tenant: str, *, default_backend: Backend) -> NetworkRequest:
    keys = value.fields(_NETWORK_KEYS, required=("cidr",))
    backend = keys["backend"].choice(Backend) if "backend" in keys else None
    host = keys["host"].text() if "host" in keys else None
    with _at(value):
        check_name(name, what="network name")
        cidr = str(parse_cidr(keys["cidr"].text(), what="cidr"))
        dns = tuple(parse_address(item.text(), what="dns") for item in _items(keys.get("dns")))
    return NetworkRequest(
        name,
        tenant,
        cidr,
        dns,
        isolated=keys["isolated"].truth() if "isolated" in keys else False,
        backend=backend or (Backend.LIBVIRT if host else default_backend),
        host=host,
    )


def _objects(entries: dict[str, Value]) -> Iterator[VpcSpec]:
    if "contact" in entries:
        yield Contact(entries["contact"].text())
    if "gateway" in entries:
        yield Gateway(_name(entries["gateway"]))
    for name, value in _mapping(entries.get("security_groups")):
        with _at(value):
            check_name(name, what="security group")
        yield SecurityGroup(name, tuple(_rule(item) for item in value.items()))
    for name, value in _mapping(entries.get("networks")):
        connect = value.mapping().get("direct_connect")
        if connect is not None:
            keys = connect.fields(("physical_network", "vlan"), required=("physical_network",))
            vlan = keys["vlan"].whole(1, 4094) if "vlan" in keys else None
            yield DirectConnect(name, _name(keys["physical_network"]), vlan)
    for name, value in _mapping(entries.get("load_balancers")):
        with _at(value):
            check_name(name, what="load balancer")
        yield _balancer(name, value)
    for item in _items(entries.get("floating_ips")):
        yield FloatingIp(_name(item), "")
    for item in _items(entries.get("port_forwards")):
        keys = item.fields(("protocol", "port", "vm", "vm_port"), required=("port", "vm", "vm_port"))
        port, vm_port = (keys[key].whole(1, 65535) for key in ("port", "vm_port"))
        yield PortForward(_transport(keys), "", port, _name(keys["vm"]), vm_port)
    for item in _items(entries.get("peerings")):
        yield PeeringSpec(_name(item), -1)


def _balancer(name: str, value: Value) -> LoadBalancer:
    keys = value.fields(_BALANCER_KEYS, required=("network", "port", "vms", "vm_port"))
    interval_s, timeout_s, failures = (
        keys[key].whole(1, 3600) if key in keys else default
        for key, default in (("interval_s", 5), ("timeout_s", 20), ("failures", 3))
    )
    return LoadBalancer(
        name=name,
        address="",
        port=keys["port"].whole(1, 65535),
        protocol=_transport(keys),
        vms=tuple(_name(item) for item in keys["vms"].items()),
        vm_port=keys["vm_port"].whole(1, 65535),
        health_interval_s=interval_s,
        health_timeout_s=timeout_s,
        health_failures=failures,
        network=_name(keys["network"]),
    )


def _transport(keys: dict[str, Value]) -> Protocol:
    protocol = keys["protocol"].choice(Protocol) if "protocol" in keys else Protocol.TCP
    if not protocol.has_ports():
        raise keys["protocol"].refuse(f"is {protocol}, which has no ports", hint="it can be tcp, udp")
    return protocol


def _rule(value: Value) -> Rule:
    keys = value.fields(("protocol", "ports", "from"))
    protocol = keys["protocol"].choice(Protocol) if "protocol" in keys else Protocol.ANY
    ports = _ports(keys["ports"]) if "ports" in keys else None
    if ports is not None and not protocol.has_ports():
        raise keys["ports"].refuse(f"is given, but {protocol} has no ports", hint="set `protocol: tcp` or udp")
    if "from" not in keys:
        return Rule(protocol, ports, ANYWHERE)
    with _at(keys["from"]):
        return Rule(protocol, ports, parse_source(keys["from"].text()))


def _ports(value: Value) -> tuple[int, int]:
    if isinstance(value.content, str):
        with _at(value):
            return parse_ports(value.content)
    port = value.whole(1, 65535)
    return port, port


def _vms(entries: dict[str, Value], tenant: str, files: SecretFiles) -> Iterator[VmRequest]:
    token = _licence_token(entries, files)
    keys = tuple(item.text() for item in _items(entries.get("ssh_keys")))
    known = (*(name for name in VmFile.__struct_fields__ if name != "tenant"), "secrets")
    seen: dict[str, Value] = {}
    for item in _items(entries.get("vms")):
        fields = item.fields(known, required=("name",))
        content = {name: value.content for name, value in fields.items() if name != "secrets"}
        if "priority" in entries:
            content.setdefault("priority", entries["priority"].content)
        with _at(item):
            request = read_entry(content, "this VM", tenant)
        if request.name in seen:
            raise fields["name"].refuse(f"is {request.name!r}, as at {seen[request.name].origin}")
        seen[request.name] = item
        wanted = [one.text() for one in _items(fields.get("secrets"))]
        if wanted not in ([], ["licence_token"]) or (wanted and token is None):
            raise fields["secrets"].refuse(f"is {wanted}", hint="the file's `secrets` can have licence_token")
        cloud_init = replace(
            request.cloud_init,
            ssh_authorized_keys=request.cloud_init.ssh_authorized_keys or keys,
            licence_token=token if wanted else None,
        )
        yield replace(request, cloud_init=cloud_init)


def _licence_token(entries: dict[str, Value], files: SecretFiles) -> SecretText | None:
    if "secrets" not in entries:
        return None
    value = entries["secrets"].fields(("licence_token",)).get("licence_token")
    if value is None:
        return None
    file = value.fields(("file",), required=("file",))["file"]
    with _at(file):
        return SecretText.of(base64.b64encode(files.read(file.text())).decode())


def _amounts(value: Value | None) -> dict[str, int | None]:
    amounts: dict[str, int | None] = {}
    for name, amount in _mapping(value):
        written = str(amount.content) if isinstance(amount.content, int | float) else amount.text()
        with _at(amount):
            amounts[parse_resource(name)] = parse_amount(name, written)
    return amounts


def _name(value: Value) -> str:
    with _at(value):
        return check_name(value.text(), what=value.name)


def _items(value: Value | None) -> list[Value]:
    return [] if value is None else value.items()


def _mapping(value: Value | None) -> list[tuple[str, Value]]:
    return [] if value is None else list(value.mapping().items())


@contextlib.contextmanager
def _at(value: Value) -> Iterator[None]:
    """Tell file and line of a UsageError that a check raised without knowing them."""
    try:
        yield
    except UsageError as error:
        raise InventoryError(f"{value.origin}: {error.message}", hint=error.hint) from error
