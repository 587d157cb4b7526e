# SPDX-License-Identifier: Apache-2.0
"""export monitoring: rules, dashboards and example configurations as files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_table, say

if TYPE_CHECKING:
    from vgpuctl.usecases.telemetry.export_monitoring import ExportedFile


class JsonExport(TypedDict):
    """Files below a folder; changed: false if all were as they are to be."""

    folder: str
    changed: bool
    files: "Sequence[ExportedFile]"


_JSON: "JsonOutput[JsonExport]" = JsonOutput()


@click.command("export monitoring")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--exporter",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9635",
    show_default=True,
    help="Exporter that Prometheus scrapes.",
)
@click.option(
    "--alertmanager",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9093",
    show_default=True,
    help="Alertmanager that Prometheus tells.",
)
@click.option(
    "--prometheus",
    "prometheus_page",
    metavar="URL",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="Prometheus that Grafana asks.",
)
@click.option(
    "--runbooks",
    metavar="URL",
    default="docs/monitoring.md",
    show_default=True,
    help="Page of the runbooks, where you publish docs/monitoring.md.",
)
@click.option("--overwrite", is_flag=True, help="Also replace files that were changed by hand.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@options.as_json
def command(
    folder: Path,
    exporter: str,
    alertmanager: str,
    prometheus_page: str,
    runbooks: str,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write rules, dashboards and configurations for Prometheus and Grafana. FOLDER gets alerting rules with their
    tests, dashboards and example configurations.

    Files for Prometheus, Alertmanager, Grafana's provisioning and systemd. The same command brings the files of an
    older version up to date; it refuses to replace one that was changed by hand. Point `rule_files` of your own
    Prometheus at FOLDER/rules.
    """
    from vgpuctl.model.plural import counted
    from vgpuctl.telemetry.shipped_files import Addresses
    from vgpuctl.usecases.telemetry.export_monitoring import FileOutcome, export_monitoring

    boards = str((folder / "grafana" / "dashboards").absolute())
    addresses = Addresses(exporter, alertmanager, prometheus_page, boards, runbooks)
    done = export_monitoring(folder, addresses, overwrite=overwrite, dry_run=dry_run)
    changed = [one for one in done if one.outcome is not FileOutcome.UNCHANGED]
    if as_json:
        _JSON.print({"folder": str(folder), "changed": bool(changed), "files": done})
        return
    if changed:
        print_table(("FILE", "OUTCOME"), [(one.path, one.outcome) for one in changed], empty="")
    left = f"; {len(done) - len(changed)} unchanged" if len(done) > len(changed) and changed else ""
    say(f"{'would change' if dry_run else 'changed'} {counted(len(changed), 'file')}{left}" if changed else "no change")
