# SPDX-License-Identifier: Apache-2.0
"""The files that a layout needs on its host beside its steps: each is compared by a plan and installed by a run."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire import textfile
from vgpuctl.agent.wire.boot import SHARES, UNIT_NAME, BootFiles, Installed, Manifest, ManifestStep
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.textfile import TIMER_NAME
from vgpuctl.errors import UsageError
from vgpuctl.guests.boot_unit import render_boot_unit
from vgpuctl.guests.textfile_units import render_textfile_files
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.move_link import MoveNetwork
from vgpuctl.ovn.authority import OWN_NAME, Identity
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.planner.layout.manifest import shares_of
from vgpuctl.usecases.declared.layout_records import shares_made
from vgpuctl.usecases.running.services import Services

BOOT_SUMMARY = f"{UNIT_NAME} restores it at boot"


@dataclass(frozen=True)
class Install:
    """Files of one purpose. ensure: compares them with the host's, and writes those that differ unless `dry_run`.

    is_declared: False for files that are only removed, where there are any. wanted: contents and links of all paths of
    the purpose as `InstalledPart` has them, None for what must not be there. shares: those of the restore at boot.
    """

    summary: str
    ensure: Callable[[bool], Change]
    is_declared: bool = True
    wanted: Mapping[str, str | None] = field(default_factory=dict)
    shares: Sequence[ManifestStep] = ()

    def difference(self, installed: Installed, ours: Collection[str]) -> "PlannedInstall | None":
        """How the files differ from those that a reading of the host found; None where they do not.

        Not the text of the list of shares is compared, but its entries: it changes while a host is read. ours: devices
        that may be listed without being there.
        """
        found = {one.name: one.content for one in installed.files}
        is_other = any(found.get(path) != content for path, content in self.wanted.items() if path != SHARES)
        if SHARES in self.wanted and not is_other:
            listed = installed.shares
            is_other = (
                listed is None
                or any(wire.listed_share(one) not in listed for one in self.shares)
                or any(one.name not in ours for one in listed)
            )
        if not is_other:
            return None
        before = "different" if self.wanted.keys() & found.keys() else None
        return PlannedInstall(self.summary, before, "installed" if self.is_declared else None)


@dataclass(frozen=True)
class PlannedInstall:
    """Files that would be installed: what is there, and what will be."""

    summary: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.summary}: {self.before or 'none'}, to be {self.after or 'none'}"


def certificates_of(services: Services, host: str, layout: HostLayout, fleet: FleetValues) -> Iterator[Install]:
    """The host's certificates for OVN's databases and for moves, where those use TLS and we are the authority.

    They are installed before the host is planned. If another host has the name in OVN, none is issued for OVN: the plan
    has an obstacle. Raises UsageError for a name that no chassis may have, and InventoryError for an address for moves
    that another host has too.
    """
    yield from _ovn_certificate(services, host, layout, fleet)
    link = services.inventory.move_link(host)
    if link.network is not MoveNetwork.TLS:
        return
    authority = services.move_authority
    if authority is not None:
        names = dict.fromkeys((host, services.inventory.move_address(host)))
        issued = authority.issue(host, tuple(names))
        yield _certificate(services, host, f"certificate of {host} for moves of VMs", issued, is_for_moves=True)


def _ovn_certificate(services: Services, host: str, layout: HostLayout, fleet: FleetValues) -> Iterator[Install]:
    network, authority = layout.network, services.authority
    if network is None or not network.uses_tls or authority is None or fleet.obstacles_of(host, layout, None):
        return
    if network.chassis == OWN_NAME:
        raise UsageError(
            f"{host} cannot be OVN's chassis {OWN_NAME}: operators have that name in their certificate",
            hint="give the host another `chassis` in the inventory",
        )
    issued = authority.issue(network.chassis)
    yield _certificate(services, host, f"certificate of {network.chassis} for OVN's databases", issued)


def _certificate(
    services: Services, host: str, summary: str, issued: Identity, *, is_for_moves: bool = False
) -> Install:
    files = CertificateFiles(issued.certificate, issued.authority, issued.key, is_for_moves)
    agent = services.host(host).agent
    return Install(summary, lambda dry_run: agent.install_certificate(files, dry_run=dry_run), is_declared=False)


def files_of(
    services: Services, host: str, layout: HostLayout, facts: HostFacts, manifest: Manifest | None, *, boot: bool
) -> Iterator[Install]:
    """The files that are installed once the host is in its layout.

    manifest: of the layout that is reached, None if it is not known yet. boot: False to leave the boot as it is.
    """
    agent = services.host(host).agent
    python, program = facts.interpreter or agent.python, build_agent().data
    if boot and manifest is not None:
        with services.store.reading() as session:
            leases = session.leases(host=host)
        shares = shares_of(facts, leases, shares_made(services, host, facts))
        unit = render_boot_unit(python, layout.stop_services, cards=len(manifest.gpus))
        files = BootFiles(manifest, shares, unit)
        wanted = _digests(wire.contents(files, program)) | dict.fromkeys(wire.UNIT_LINKS, wire.UNIT)
        yield Install(
            BOOT_SUMMARY, lambda dry_run: agent.install_boot(files, dry_run=dry_run), wanted=wanted, shares=shares
        )
    timer = render_textfile_files(host, layout.telemetry, python=python)
    is_declared = layout.telemetry is not None
    present = _digests(textfile.contents(timer, program)) | dict(textfile.LINKS)
    yield Install(
        f"{TIMER_NAME} writes the readings for node_exporter",
        lambda dry_run: agent.install_textfile(timer, dry_run=dry_run),
        is_declared=is_declared,
        wanted=present if is_declared else dict.fromkeys(textfile.FILES),
    )


def _digests(contents: Mapping[str, bytes]) -> dict[str, str | None]:
    return {path: wire.sha256(content) for path, content in contents.items()}
