# SPDX-License-Identifier: Apache-2.0
"""The parts of a support bundle: versions, settings, the inventory and the store, field by field.

It takes data that is known to be harmless: numbers, states, versions, devices and names. Free text, such as the detail
of an event or the reason of a cordon, goes to the texts, which the user is shown before they go in.
"""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vgpuctl import __version__
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import AgentBroken, VgpuctlError
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.model.anonymous import NameKind, host_words
from vgpuctl.model.event import Event
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.restriction import Restriction
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.planner.doctor.finding import Finding
from vgpuctl.store.controllers import Controller
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.states import read_states
from vgpuctl.usecases.operate.harmless import LEFT_OUT, Harmless
from vgpuctl.usecases.operate.show_config import ShownSetting
from vgpuctl.usecases.running.services import Services

_OF_SHARE = ("gpu", "function", "mdev_uuid", "type_id", "profile")
_SYSTEM_PYTHON = re.compile(r"auto|/usr/(?:local/)?bin/python3?(?:\.[0-9]{1,2})?")
_ORIGIN = re.compile(r"default|environment VGPUCTL_[A-Z_]+")
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
        agent = error.reference
    return {
        "vgpuctl": __version__,
        "agent_sha256": agent,
        "python": sys.version,
        "platform": platform.platform(),
        "libraries": libraries,
    }


def settings_of(shown: Sequence[ShownSetting], harmless: Harmless) -> list[dict[str, Any]]:
    """Every setting and the kind of its source; the value where it is a number or of a closed set."""
    found = []
    for one in shown:
        value: Any = one.value
        if isinstance(value, (str, list, tuple)):
            value = harmless.known(value) if isinstance(value, str) else LEFT_OUT
            harmless.text(f"settings.{one.setting}", [one.value, one.origin])
        origin = one.origin if _ORIGIN.fullmatch(one.origin) else "file"
        found.append({"setting": one.setting, "value": value, "origin": origin})
    return found


def inventory_of(
    services: Services, secrets: set[str], names: dict[NameKind, set[str]], harmless: Harmless
) -> list[dict[str, Any]]:
    """The hosts of the inventory and how they are reached. Passwords go to `secrets`, names to `names`."""
    found: list[dict[str, Any]] = []
    for host in services.inventory.hosts():
        harmless.named(host)
        try:
            target = services.inventory.target(host)
        except VgpuctlError as error:
            harmless.text(f"inventory.{host}", error.message)
            found.append({"host": host, "problem": error.reference})
            continue
        secrets |= {one.reveal() for one in (target.password, target.become_password) if one is not None}
        if target.common_args is not None:
            secrets |= target.common_args.words()
        for kind, words in host_words(host, target.address).items():
            names[kind] |= words
        names[NameKind.USER] |= {target.user or "", target.become_user or ""}
        is_usual = _SYSTEM_PYTHON.fullmatch(target.python_interpreter) is not None
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
                "python_interpreter": target.python_interpreter if is_usual else LEFT_OUT,
                "groups": len(target.groups),
            }
        )
    return found


def store_parts(
    session: Session, names: dict[NameKind, set[str]], events: int, harmless: Harmless
) -> Mapping[str, Callable[[], Any]]:
    """The parts of the store by their names, each read when it is called; those with names first."""

    def named(kind: NameKind, *words: str | None) -> None:
        for word in filter(None, words):
            names[kind].add(word)
            harmless.named(word)

    def tenants() -> list[str | None]:
        found = [one.name for one in session.tenants()]
        named(NameKind.TENANT, *found)
        return [harmless.named(one) for one in found]

    def vms() -> list[dict[str, Any]]:
        found = session.vms()
        for vm in found:
            named(NameKind.VM, vm.request.name, vm.domain)
        return [_vm(one, harmless) for one in found]

    def last_events() -> list[dict[str, Any]]:
        found = session.events(events)
        for one in found:
            named(NameKind.USER, one.actor.os_user)
            for kind, words in host_words(one.actor.client_host).items():
                names[kind] |= words
        return [_event(one, harmless) for one in found]

    def objects() -> dict[str, int]:
        found = {
            "images": [one.name for one in session.images()],
            "networks": [one.request.name for one in session.networks()],
            "licence_pools": [one.name for one in session.licence_pools()],
            "node_pools": [one.name for one in session.node_pools()],
            "volumes": [one.label for one in session.volumes() if one.label],
        }
        for kind, words in found.items():
            names[NameKind.OBJECT] |= set(words)
            harmless.text(f"objects.{kind}", words)
        return {kind: len(words) for kind, words in found.items()}

    return {
        "tenants.json": tenants,
        "vms.json": vms,
        "objects.json": objects,
        "leases.json": lambda: [_lease(one, harmless) for one in session.leases(live_only=False)],
        "events.json": last_events,
        "failures.json": lambda: _failures(session, events, harmless),
        "states.json": lambda: _states(session, harmless),
        "controllers.json": lambda: [_controller(one, harmless) for one in session.controllers()],
        "restrictions.json": lambda: [_restriction(one, harmless) for one in session.restrictions()],
        "facts": lambda: {host: _cached(host, one, harmless) for host, one in session.all_facts().items()},
    }


def _cached(host: str, cached: Any, harmless: Harmless) -> dict[str, Any]:
    harmless.named(host)
    try:
        return {"cached_at": cached.read_at, **facts_of(host, cached.facts, harmless)}
    except VgpuctlError as error:
        harmless.text(f"facts.{host}", error.message)
        return {"cached_at": cached.read_at, "problem": error.reference}


def facts_of(host: str, facts: HostFacts, harmless: Harmless) -> dict[str, Any]:
    """The facts of a host without its own words; the name that it gives itself is its own."""
    found: dict[str, Any] = harmless.facts(to_json(facts), f"facts.{host}")
    return {**found, "hostname": harmless.named(facts.hostname)}


def finding_of(host: str, number: int, finding: Finding, harmless: Harmless) -> dict[str, Any]:
    """A finding of check-hosts: its code; what was read is the host's own words."""
    harmless.text(f"checks.{host}.{number}", [finding.subject, finding.read, finding.fix, finding.command])
    return {"check": finding.check, "severity": finding.severity, "subject": harmless.known(finding.subject)}


def _vm(vm: Vm, harmless: Harmless) -> dict[str, Any]:
    """A VM without the words and documents of its user."""
    request = vm.request
    harmless.text(f"vms.{vm.uuid}", vm.problem)
    return {
        "name": harmless.known(request.name),
        "tenant": harmless.named(request.tenant),
        "uuid": vm.uuid,
        "host": harmless.named(vm.host),
        "state": vm.state,
        "has_problem": vm.problem is not None,
        "is_in_gang": vm.gang is not None,
        "ends_at": vm.ends_at,
        "guest_driver": harmless.known(vm.guest_driver),
        "vcpus": request.vcpus,
        "memory_mib": request.memory_mib,
        "gpus": [
            {"count": one.count, "profile": harmless.known(one.profile), "sharing": one.sharing} for one in request.gpus
        ],
        "firmware": request.firmware,
    }


def _lease(lease: Lease, harmless: Harmless) -> dict[str, Any]:
    share = lease.share
    harmless.text(f"leases.{lease.id}", lease.problem)
    return {
        "id": harmless.known(lease.id),
        "vm_uuid": lease.vm_uuid,
        "tenant": harmless.known(lease.tenant),
        "vm_name": harmless.known(lease.vm_name),
        "host": harmless.known(lease.host),
        "index": lease.index,
        "state": lease.state,
        "has_problem": lease.problem is not None,
        "sharing": share.sharing,
        "framebuffer_mib": share.framebuffer_mib,
        "numa_node": share.numa_node,
        "placement_start": share.placement_start,
        **{name: harmless.known(getattr(share, name)) for name in _OF_SHARE},
    }


def _event(event: Event, harmless: Harmless) -> dict[str, Any]:
    texts = {"subject": event.subject, "detail": event.detail}
    changed = {"before": dict(event.before), "after": dict(event.after), "evidence": dict(event.evidence)}
    harmless.text(f"events.{event.id}", {**texts, **changed})
    return {
        "id": event.id,
        "at": event.at,
        "kind": harmless.known(event.kind),
        "subject": harmless.known(event.subject),
        "tenant": harmless.known(event.tenant),
        "host": harmless.known(event.host),
        "command": harmless.known(event.actor.command),
        **{name: harmless.values(values) for name, values in changed.items()},
    }


def _restriction(one: Restriction, harmless: Harmless) -> dict[str, Any]:
    harmless.text(f"restrictions.{one.subject}", [one.reason, one.set_by])
    return {
        "host": harmless.known(one.host),
        "device": harmless.known(one.device),
        "kind": one.kind,
        "finding": harmless.known(one.finding),
        "gpu_uuid": harmless.known(one.gpu_uuid),
        "set_at": one.set_at,
    }


def _controller(one: Controller, harmless: Harmless) -> dict[str, Any]:
    return {
        "id": harmless.known(one.id),
        "pid": one.pid,
        "beat": one.beat,
        "begun_at": one.begun_at,
        "serves": sorted(str(harmless.known(host)) for host in one.serves),
        "hosts": sorted(str(harmless.known(host)) for host in one.hosts),
    }


def _states(session: Session, harmless: Harmless) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, rows in read_states(session).rows.items():
        found[name] = []
        for number, row in enumerate(rows):
            harmless.text(f"states.{name}.{number}", row.text)
            labels = [harmless.known(one) for one in row.labels]
            found[name].append({"labels": labels, "states": row.states, "value": row.value, "at": row.at})
    return found


def _failures(session: Session, events: int, harmless: Harmless) -> dict[str, Any]:
    """Failures that last, and the last events of failures."""
    waiting = session.queue()
    for one in waiting:
        harmless.text(f"queue.{one.id}", [one.vm_names, one.reason])
    return {
        "broken_vms": [_vm(one, harmless) for one in session.vms() if one.state is VmState.BROKEN or one.problem],
        "broken_leases": [
            _lease(one, harmless) for one in session.leases() if one.state is LeaseState.BROKEN or one.problem
        ],
        "interrupted_runs": [
            {
                "kind": harmless.known(one.kind),
                "subject": harmless.known(one.subject),
                "pid": one.pid,
                "begun_at": one.begun_at,
            }
            for one in session.open_operations()
        ],
        "waiting": [{"vms": len(one.requests), "queued_at": one.queued_at, "refusal": one.refusal} for one in waiting],
        "events": [_event(one, harmless) for one in session.events(events) if one.kind in _FAILED],
    }
