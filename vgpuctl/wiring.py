# SPDX-License-Identifier: Apache-2.0
"""From settings to services: the only place that names concrete classes of the rooms."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgpuctl.errors import UsageError
from vgpuctl.usecases.running.services import HostSession, Openers, Services

if TYPE_CHECKING:
    from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
    from vgpuctl.hosts.agent_client import AgentClient
    from vgpuctl.hosts.connection import Connection
    from vgpuctl.hosts.fleet import FleetProgress
    from vgpuctl.hosts.jump_hosts import JumpHosts
    from vgpuctl.hosts.settings import SshSettings
    from vgpuctl.inventory.load import Inventory
    from vgpuctl.model.node_pool import NodePool
    from vgpuctl.model.rehearsal import Rehearsal
    from vgpuctl.ovn.authority import Authority
    from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
    from vgpuctl.ovn.southbound import Southbound
    from vgpuctl.ovn.tracing import PacketTracer
    from vgpuctl.store.restore import StorePlace
    from vgpuctl.store.store import Store
    from vgpuctl.usecases.running.cluster_link import ClusterLink
    from vgpuctl.usecases.running.history import PastSource


@dataclass(frozen=True)
class Settings:
    """Settings of the command line and the environment. rehearsal: of a dry run, which changes nothing."""

    inventories: Sequence[str] = ()
    database: str | None = None
    limit: str | None = None
    forks: int | None = None
    known_hosts: Path | None = None
    connect_timeout_s: float = 10.0
    command_timeout_s: float = 60.0
    ovn_northbound: str | None = None
    ovn_southbound: str | None = None
    ovn_key: Path | None = None
    ovn_certificate: Path | None = None
    ovn_authority: Path | None = None
    authority_folder: Path | None = None
    reachable_networks: Sequence[str] = ()
    internal_domain: str | None = None
    key_file: Path | None = None
    command: str = ""
    history: Path | None = None
    prometheus: str | None = None
    performance: Path | None = None
    slurm_folder: Path | None = None
    cluster_networks: Sequence[str] = ()
    inventory_reader: str | None = None
    rehearsal: "Rehearsal | None" = None


def open_services(
    settings: Settings,
    say: Callable[[str], None],
    *,
    watch: "Callable[[FleetProgress], None] | None" = None,
    clock: Callable[[], float] = time.time,
) -> Services:
    """Build the services of one command. Nothing is read or opened before its first use.

    watch: shows the progress of runs over hosts. clock: what the use cases decide by and the store writes down,
    seconds since the epoch, UTC.
    """

    def load() -> "Inventory":
        if not settings.inventories:
            raise UsageError("no inventory given", hint="give -i PATH, or set VGPUCTL_INVENTORY")
        from vgpuctl.inventory.load import load_inventory, reader_named

        return load_inventory(settings.inventories, reader_named(settings.inventory_reader))

    def inventory_mark() -> object:
        if not settings.inventories:
            return None
        from vgpuctl.inventory.fingerprint import fingerprint

        return fingerprint(settings.inventories, settings.inventory_reader)

    def store() -> "Store":
        from vgpuctl.actor import find_actor
        from vgpuctl.store.store import default_url, open_store

        actor = find_actor(settings.command)
        return open_store(settings.database or default_url(), clock=clock, key_file=settings.key_file, actor=actor)

    def store_place() -> "StorePlace":
        from vgpuctl.actor import find_actor
        from vgpuctl.store.address import default_url
        from vgpuctl.store.restore import StorePlace

        return StorePlace(settings.database or default_url(), clock, settings.key_file, find_actor(settings.command))

    @functools.cache
    def ssh() -> "SshSettings":
        from vgpuctl.hosts.settings import SshSettings

        return SshSettings(
            known_hosts_file=settings.known_hosts,
            connect_timeout_s=settings.connect_timeout_s,
            libvirt_answer_s=settings.command_timeout_s,
        )

    @functools.cache
    def jump_hosts() -> "JumpHosts":
        from vgpuctl.hosts.jump_hosts import JumpHosts

        return JumpHosts()

    def session(inventory: "Inventory", name: str) -> HostSession:
        from vgpuctl.hosts.connection import Connection

        connection = Connection(inventory.target(name), settings=ssh(), jump_hosts=jump_hosts())
        return HostSession(name, connection, open_agent, open_hypervisor, rehearsal=settings.rehearsal)

    def open_agent(connection: "Connection") -> "AgentClient":
        from vgpuctl.hosts.agent_client import AgentClient
        from vgpuctl.usecases.observed.host_identity import refuse_other_host

        check = functools.partial(refuse_other_host, services, connection.target.name)
        return AgentClient(
            connection, answer_timeout_s=settings.command_timeout_s, check=check, rehearsal=settings.rehearsal
        )

    def open_hypervisor(uri: str, host: str) -> "Hypervisor":
        from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
        from vgpuctl.usecases.observed.host_identity import refuse_other_libvirt

        check = functools.partial(refuse_other_libvirt, services, host)
        return Hypervisor(uri, host=host, check=check, rehearsal=settings.rehearsal)

    def northbound() -> "Northbound":
        from vgpuctl.ovn.authority import OWN_NAME
        from vgpuctl.ovn.northbound import Northbound, NorthboundAddress

        remote = settings.ovn_northbound or ""
        named = (settings.ovn_key, settings.ovn_certificate, settings.ovn_authority)
        own = _authority(settings) if remote.startswith("ssl:") and named == (None, None, None) else None
        if own is not None:
            files = own.files(OWN_NAME)
            address = NorthboundAddress(remote, files.key, files.certificate, files.authority)
        else:
            address = NorthboundAddress(remote, settings.ovn_key, settings.ovn_certificate, settings.ovn_authority)
        return Northbound(address, rehearses=settings.rehearsal is not None)

    def southbound() -> "Southbound":
        from vgpuctl.ovn.southbound import Southbound

        return Southbound(_southbound_address(settings))

    def past() -> "PastSource":
        from vgpuctl.usecases.running.history import PastSource, history_path

        return PastSource(history_path(settings.history, settings.database), settings.prometheus)

    def performance() -> Path:
        from vgpuctl.usecases.measured.performance import performance_path

        return performance_path(settings.performance, settings.database)

    services = Services(
        Openers(
            inventory=load,
            inventory_mark=inventory_mark,
            store=store,
            store_place=store_place,
            session=session,
            northbound=northbound if settings.ovn_northbound else None,
            tracer=functools.partial(_tracer, settings),
            southbound=southbound if settings.ovn_southbound else None,
            authority=functools.partial(_authority, settings),
            move_authority=functools.partial(_move_authority, settings),
            past=past,
            performance=performance,
            cluster=functools.partial(_open_cluster, settings),
            rehearsal=functools.partial(_open_rehearsal, settings, clock, watch),
        ),
        say=say,
        limit=settings.limit,
        forks=settings.forks,
        watch=watch,
        reachable_networks=_parsed(settings.reachable_networks),
        internal_domain=_domain(settings.internal_domain),
        rehearsal=settings.rehearsal,
    )
    return services


def _open_rehearsal(
    settings: Settings, clock: Callable[[], float], watch: "Callable[[FleetProgress], None] | None"
) -> Services:
    from vgpuctl.model.rehearsal import Rehearsal

    rehearsal = Rehearsal(goes_on=True, of_reader=True)
    return open_services(replace(settings, rehearsal=rehearsal), lambda _text: None, clock=clock, watch=watch)


def _parsed(networks: Sequence[str]) -> tuple[str, ...]:
    """The networks in their normal form. Raises UsageError."""
    if not networks:
        return ()
    from vgpuctl.model.network import parse_reachable

    return tuple(str(parse_reachable(text)) for text in networks)


def _domain(text: str | None) -> str | None:
    """The domain of internal names. Raises UsageError."""
    from vgpuctl.model.internal_names import parse_domain

    return parse_domain(text) if text else None


def _open_cluster(settings: Settings, pool: "NodePool") -> "ClusterLink | None":
    from vgpuctl.model.node_pool import NodeRole

    if pool.role is NodeRole.SLURM and settings.slurm_folder is not None:
        from vgpuctl.clusters.slurm.config_file import SlurmConfig
        from vgpuctl.clusters.slurm.link import SlurmLink

        return SlurmLink(SlurmConfig(settings.slurm_folder, pool.tenant, pool.cluster))
    if pool.role.is_kubernetes and pool.join.kubeconfig is not None:
        from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
        from vgpuctl.clusters.kubernetes.link import KubernetesLink
        from vgpuctl.clusters.kubernetes.server_address import parse_cluster_networks

        networks = parse_cluster_networks(settings.cluster_networks)
        config = read_kubeconfig(pool.join.kubeconfig, networks)
        return KubernetesLink(config, tenant=pool.tenant, name=pool.cluster, check=networks.check)
    return None


def _southbound_address(settings: Settings) -> "NorthboundAddress":
    """The southbound database trusts the authority of hosts, so ours has an identity for it: `southbound`."""
    from vgpuctl.ovn.northbound import NorthboundAddress
    from vgpuctl.ovn.southbound import OWN_NAME

    remote = settings.ovn_southbound or ""
    named = (settings.ovn_key, settings.ovn_certificate, settings.ovn_authority)
    own = _authority(settings) if remote.startswith("ssl:") and named == (None, None, None) else None
    if own is None:
        return NorthboundAddress(remote, *named)
    files = own.files(OWN_NAME)
    if not files.key.exists():
        raise UsageError(
            f"there is no certificate {OWN_NAME} for OVN's southbound database {remote}",
            hint=f"create it with `vgpuctl create-certificate {OWN_NAME}`",
        )
    return NorthboundAddress(remote, files.key, files.certificate, files.authority)


def _authority(settings: Settings) -> "Authority | None":
    from vgpuctl.ovn.authority import Authority, default_folder

    found = Authority(settings.authority_folder or default_folder())
    return found if found.exists() else None


def _tracer(settings: Settings) -> "PacketTracer | None":
    if not settings.ovn_southbound:
        return None
    from vgpuctl.ovn.tracing import PacketTracer

    return PacketTracer(_southbound_address(settings))


def _move_authority(settings: Settings) -> "Authority":
    from vgpuctl.ovn.authority import MOVES, Authority, default_folder

    return Authority((settings.authority_folder or default_folder()) / MOVES, MOVES)
