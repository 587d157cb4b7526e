# SPDX-License-Identifier: Apache-2.0
"""The files that a layout needs on its host beside its steps: each is compared by a plan and installed by a run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpuctl.agent.wire.boot import UNIT_NAME, BootFiles, Manifest
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.textfile import TIMER_NAME
from vgpuctl.errors import UsageError
from vgpuctl.guests.boot_unit import render_boot_unit
from vgpuctl.guests.textfile_units import render_textfile_files
from vgpuctl.model.layout import HostLayout
from vgpuctl.ovn.authority import OWN_NAME
from vgpuctl.planner.layout import shares_of
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.usecases.support.layout_records import shares_made
from vgpuctl.usecases.support.services import Services

BOOT_SUMMARY = f"{UNIT_NAME} restores it at boot"


@dataclass(frozen=True)
class Install:
    """Files of one purpose. ensure: compares them with the host's, and writes those that differ unless `dry_run`.

    is_declared: False for files that are only removed, where there are any.
    """

    summary: str
    ensure: Callable[[bool], Change]
    is_declared: bool = True


@dataclass(frozen=True)
class PlannedInstall:
    """Files that would be installed: what is there, and what will be."""

    summary: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.summary}: {self.before or 'none'}, to be {self.after or 'none'}"


def certificate_of(services: Services, host: str, layout: HostLayout, fleet: FleetValues) -> Iterator[Install]:
    """The host's certificate for OVN's databases, if they are reached over TLS and we are the authority.

    It is installed before the host is planned. If another host has the name, there is none, and the plan says so.
    Raises UsageError for a name that no chassis may have.
    """
    network, authority = layout.network, services.authority
    if network is None or not network.uses_tls or authority is None or fleet.obstacles_of(host, layout, None):
        return
    if network.chassis == OWN_NAME:
        raise UsageError(
            f"{host} cannot be OVN's chassis {OWN_NAME}: operators have that name in their certificate",
            hint="give the host another `chassis` in the inventory",
        )
    issued = authority.issue(network.chassis)
    files = CertificateFiles(issued.certificate, issued.authority, issued.key)
    agent = services.host(host).agent
    yield Install(
        f"certificate of {network.chassis} for OVN's databases",
        lambda dry_run: agent.install_certificate(files, dry_run=dry_run),
        is_declared=False,
    )


def files_of(
    services: Services, host: str, layout: HostLayout, facts: HostFacts, manifest: Manifest | None, *, boot: bool
) -> Iterator[Install]:
    """The files that are installed once the host is in its layout.

    manifest: of the layout that is reached, None if it is not known yet. boot: False to leave the boot as it is.
    """
    agent = services.host(host).agent
    if boot and manifest is not None:
        with services.store.reading() as session:
            leases = session.leases(host=host)
        shares = shares_of(facts, leases, shares_made(services, host, facts))
        unit = render_boot_unit(agent.python, layout.stop_services, cards=len(manifest.gpus))
        files = BootFiles(manifest, shares, unit)
        yield Install(BOOT_SUMMARY, lambda dry_run: agent.install_boot(files, dry_run=dry_run))
    timer = render_textfile_files(host, layout.telemetry, python=agent.python)
    yield Install(
        f"{TIMER_NAME} writes the readings for node_exporter",
        lambda dry_run: agent.install_textfile(timer, dry_run=dry_run),
        is_declared=layout.telemetry is not None,
    )
