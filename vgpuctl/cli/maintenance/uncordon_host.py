# SPDX-License-Identifier: Apache-2.0
"""uncordon-host: a host or GPU takes VMs again."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.errors import PartialFailure
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.restriction import Restriction


class JsonUncordoned(TypedDict):
    """lifted: the restrictions that ended. started: the outcome for each VM that was started."""

    changed: bool
    lifted: "Sequence[Restriction]"
    started: Mapping[str, str]


_JSON: "JsonOutput[JsonUncordoned]" = JsonOutput()


@click.command("uncordon-host")
@click.argument("host")
@options.only_gpu("Uncordon only this GPU, by its PCI address.")
@options.reason("Reason, for the event.", required=False)
@click.option("--start", "starts", is_flag=True, help="Start the VMs that `drain-host --stop` stopped.")
@click.option("--force", is_flag=True, help="Accept a layout that differs, and volumes of no VM.")
@options.dry_run
@options.one_host
@options.as_json
def command(
    host: str,
    gpu: str | None,
    reason: str,
    starts: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Let a cordoned host or GPU take VMs again.

    A drained or fenced host is read first: its GPUs must be without problems, and its layout as declared; its restore
    at boot is not looked at. On a fenced host, VMs that are elsewhere by now are ended, and `gc` must have deleted what
    is left of others.

    A GPU in quarantine stays there until `unquarantine-gpu`.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.uncordon_host import start_drained, uncordon_host

    with services(rehearses=dry_run, **where) as opened:
        lifted = uncordon_host(opened, host, gpu=gpu, reason=reason, force=force)
        started = start_drained(opened, host) if starts else []
    if as_json:
        _JSON.print({"changed": bool(lifted), "lifted": lifted, "started": dict(started)})
    else:
        outcome = "would take VMs again" if dry_run else "takes VMs again"
        say(f"{host}{f' {gpu}' if gpu else ''}: {outcome if lifted else 'no change'}")
        for name, outcome in started:
            say(f"{name}: {outcome}")
    failed = [f"{name}: {outcome}" for name, outcome in started if outcome != "running"]
    if failed:
        raise PartialFailure(f"{counted(len(failed), 'VM')} of {host} did not start", context=failed)
