# SPDX-License-Identifier: Apache-2.0
"""onboard: one file, one tenant."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.errors import VgpuctlError

if TYPE_CHECKING:
    from vgpuctl.usecases.network.vpc_changes import ObjectOutcome


_UNCHANGED = "unchanged"
_MOST_UNCHANGED = 10
"""So many unchanged objects of a kind have a row each."""
_IN_DRY_RUN = {
    "created": "would be created",
    "changed": "would be changed",
    "removed": "would be removed",
    "leaving": "would leave",
}


class JsonOnboarded(TypedDict):
    """A tenant, and what was done with each of its objects."""

    tenant: str
    changed: bool
    objects: "Sequence[ObjectOutcome]"


class JsonOnboardedTenants(TypedDict):
    """Several tenants."""

    changed: bool
    tenants: list[JsonOnboarded]


_JSON: "JsonOutput[JsonOnboarded | JsonOnboardedTenants]" = JsonOutput()


@click.command("onboard")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--diff", is_flag=True, help="Show the changes of each object.")
@click.option("--prune", is_flag=True, help="Remove the tenant's objects that are not in the file.")
@click.option(
    "--secrets-from",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    envvar="VGPUCTL_SECRETS_FROM",
    metavar="DIR",
    help="Further folder with secrets that FILE may name; several times.  [env: VGPUCTL_SECRETS_FROM]",
)
@options.dry_run
@options.many_hosts
@options.as_json
def command(
    file: Path,
    diff: bool,
    prune: bool,
    secrets_from: tuple[Path, ...],
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Create or change a tenant from its file. The file has quotas, networks and their objects, VMs, and node pools.

    A file with several YAML documents has one tenant in each; all are read before the first is changed. FILE `-` is
    standard input.
    The same command again changes nothing, and finishes an interrupted run.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.network import Backend
    from vgpuctl.specs.tenant import read_tenant_files
    from vgpuctl.usecases.tenant.onboard import onboard, require_hosts

    results: list[tuple[str, list[ObjectOutcome]]] = []
    with services(rehearses=dry_run, **where) as opened:
        backend = Backend.OVN if opened.has_northbound else Backend.LIBVIRT
        tenants = read_tenant_files(file, default_backend=backend, secrets_from=secrets_from)
        for one in tenants:
            require_hosts(opened, one, prune=prune)
        try:
            for one in tenants:
                results.append((one.tenant, []))
                onboard(opened, one, results[-1][1], prune=prune)
        except VgpuctlError:
            _show([one for one in results if one[1]], dry_run=dry_run, diff=diff, as_json=as_json)
            raise
    _show(results, dry_run=dry_run, diff=diff, as_json=as_json)


def _show(results: "Sequence[tuple[str, list[ObjectOutcome]]]", *, dry_run: bool, diff: bool, as_json: bool) -> None:
    """Print what was done, or would be; of a run that failed what was done before."""
    from vgpuctl.usecases.tenant.onboard import count

    if not results:
        return
    if as_json:
        told: list[JsonOnboarded] = [
            {"tenant": tenant, "changed": not dry_run and _has_changes(outcomes), "objects": outcomes}
            for tenant, outcomes in results
        ]
        _JSON.print(told[0] if len(told) == 1 else {"changed": any(one["changed"] for one in told), "tenants": told})
        return
    for tenant, outcomes in results:
        print_table(["KIND", "NAME", "OUTCOME"], _rows(outcomes, dry_run=dry_run), empty="nothing to do")
        if diff:
            for one in outcomes:
                for line in one.detail:
                    print_line(f"{one.kind} {one.name}: {line}")
        said = ", ".join(f"{number} {_word(word, dry_run=dry_run)}" for word, number in count(outcomes).items())
        say(f"{tenant}: {said}" + (" (nothing was written)" if dry_run else ""))


def _rows(outcomes: "Sequence[ObjectOutcome]", *, dry_run: bool) -> list[tuple[str, str, str]]:
    """One row for each object; of many unchanged ones of a kind their number."""
    unchanged = Counter(one.kind for one in outcomes if one.outcome == _UNCHANGED)
    many = {kind: number for kind, number in unchanged.items() if number > _MOST_UNCHANGED}
    rows: dict[tuple[str, str, str], None] = {}
    for one in outcomes:
        is_one_of_many = one.outcome == _UNCHANGED and one.kind in many
        name = f"{many[one.kind]} of them" if is_one_of_many else one.name
        rows[one.kind, name, _word(one.outcome, dry_run=dry_run)] = None
    return list(rows)


def _word(outcome: str, *, dry_run: bool) -> str:
    return _IN_DRY_RUN.get(outcome, outcome) if dry_run else outcome


def _has_changes(outcomes: "Sequence[ObjectOutcome]") -> bool:
    return any(one.outcome in ("created", "changed", "removed", "leaving") for one in outcomes)
