# SPDX-License-Identifier: Apache-2.0
"""The parts of a support bundle: versions, the inventory and the store, field by field.

A request of a VM or pool can hold documents of its user, so no whole request is taken.
"""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vgpuctl import __version__
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.errors import AgentBroken, VgpuctlError
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.model.anonymous import NameKind, host_words
from vgpuctl.model.event import Event
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.states import read_states

# The name ends where a version, an extra or a condition begins (PEP 508).
_DISTRIBUTION = re.compile(r"[^A-Za-z0-9._-]")
_FAILED = frozenset(
    (
        *(EventKind.VM_ROLLED_BACK, EventKind.VM_LOST, EventKind.VM_NOT_RESTARTED, EventKind.LEASE_BROKEN),
        *(EventKind.SHARE_NOT_RESTORED, EventKind.LAYOUT_NOT_RESTORED, EventKind.LAYOUT_STEP_FAILED),
        *(EventKind.GPU_QUARANTINED, EventKind.HOST_FENCED, EventKind.NODE_NEVER_JOINED, EventKind.NODE_REFUSED),
    )
)


def vgpuctl_versions() -> dict[str, Any]:
    """Versions of vgpuctl, its Python, its libraries and this machine."""
    libraries = {}
    for requirement in importlib.metadata.requires("vgpuctl") or ():
        name = _DISTRIBUTION.split(requirement, maxsplit=1)[0]
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            libraries[name] = "not installed"
    try:
        agent = build_agent().sha256
    except AgentBroken as error:
        agent = error.message
    return {
        "vgpuctl": __version__,
        "agent_sha256": agent,
        "python": sys.version,
        "platform": platform.platform(),
        "libraries": libraries,
    }


def inventory_of(services: Services, secrets: set[str], names: dict[NameKind, set[str]]) -> list[dict[str, Any]]:
    """The hosts of the inventory and how they are reached. Passwords go to `secrets`, names to `names`."""
    found: list[dict[str, Any]] = []
    for host in services.inventory.hosts():
        try:
            target = services.inventory.target(host)
        except VgpuctlError as error:
            found.append({"host": host, "problem": error.message})
            continue
        secrets |= {one.reveal() for one in (target.password, target.become_password) if one is not None}
        for kind, words in host_words(host, target.address).items():
            names[kind] |= words
        names[NameKind.USER] |= {target.user or "", target.become_user or ""}
        found.append(
            {
                "host": host,
                "address": target.address,
                "port": target.port,
                "user": target.user,
                "become": target.become,
                "has_password": target.password is not None,
                "has_key_file": target.private_key_file is not None,
                "has_common_args": target.common_args is not None,
                "python_interpreter": target.python_interpreter,
                "groups": target.groups,
            }
        )
    return found


def store_parts(session: Session, names: dict[NameKind, set[str]], events: int) -> Mapping[str, Callable[[], Any]]:
    """The parts of the store by their names, each read when it is called."""

    def named(kind: NameKind, *words: str | None) -> None:
        names[kind] |= {word for word in words if word}

    def tenants() -> list[str]:
        found = [one.name for one in session.tenants()]
        named(NameKind.TENANT, *found)
        return found

    def vms() -> list[dict[str, Any]]:
        found = session.vms()
        for vm in found:
            named(NameKind.VM, vm.request.name, vm.domain)
        return [_vm(one) for one in found]

    def last_events() -> list[dict[str, Any]]:
        found = session.events(events)
        for one in found:
            named(NameKind.USER, one.actor.os_user)
            for kind, words in host_words(one.actor.client_host).items():
                names[kind] |= words
        return [_event(one) for one in found]

    def objects() -> dict[str, list[str]]:
        found = {
            "images": [one.name for one in session.images()],
            "networks": [one.request.name for one in session.networks()],
            "licence_pools": [one.name for one in session.licence_pools()],
            "node_pools": [one.name for one in session.node_pools()],
            "volumes": [one.label for one in session.volumes() if one.label],
        }
        for words in found.values():
            named(NameKind.OBJECT, *words)
        return found

    return {
        "tenants.json": tenants,
        "vms.json": vms,
        "objects.json": objects,
        "leases.json": lambda: msgspec.to_builtins(session.leases(live_only=False), enc_hook=str),
        "events.json": last_events,
        "failures.json": lambda: _failures(session, events),
        "states.json": lambda: msgspec.to_builtins(read_states(session).rows, str_keys=True, enc_hook=str),
        "controllers.json": lambda: msgspec.to_builtins(session.controllers(), enc_hook=str),
        "restrictions.json": lambda: msgspec.to_builtins(session.restrictions(), enc_hook=str),
        "facts": lambda: {host: _cached(one) for host, one in session.all_facts().items()},
    }


def _cached(cached: Any) -> dict[str, Any]:
    try:
        return {"cached_at": cached.read_at, **to_json(cached.facts)}
    except VgpuctlError as error:
        return {"cached_at": cached.read_at, "problem": error.message}


def _vm(vm: Vm) -> dict[str, Any]:
    """A VM without the documents of its user."""
    request = vm.request
    return {
        "name": request.name,
        "tenant": request.tenant,
        "uuid": vm.uuid,
        "host": vm.host,
        "state": vm.state,
        "problem": vm.problem,
        "gang": vm.gang,
        "ends_at": vm.ends_at,
        "guest_driver": vm.guest_driver,
        "vcpus": request.vcpus,
        "memory_mib": request.memory_mib,
        "gpus": [str(gpu) for gpu in request.gpus],
        "firmware": request.firmware,
    }


def _event(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    return found


def _failures(session: Session, events: int) -> dict[str, Any]:
    """Failures that last, and the last events of failures."""
    return {
        "broken_vms": [_vm(one) for one in session.vms() if one.state is VmState.BROKEN or one.problem],
        "broken_leases": [
            msgspec.to_builtins(one, enc_hook=str)
            for one in session.leases()
            if one.state is LeaseState.BROKEN or one.problem
        ],
        "interrupted_runs": [
            {
                "kind": one.kind,
                "subject": one.subject,
                "pid": one.pid,
                "hostname": one.hostname,
                "begun_at": one.begun_at,
            }
            for one in session.open_operations()
        ],
        "waiting": [
            {"vms": one.vm_names, "queued_at": one.queued_at, "reason": one.reason, "refusal": one.refusal}
            for one in session.queue()
        ],
        "events": [_event(one) for one in session.events(events) if one.kind in _FAILED],
    }
