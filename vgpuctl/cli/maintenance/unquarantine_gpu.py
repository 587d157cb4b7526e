# SPDX-License-Identifier: Apache-2.0
"""unquarantine-gpu: a GPU leaves quarantine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.model.restriction import Restriction


class JsonLifted(TypedDict):
    """lifted: the restrictions that ended."""

    changed: bool
    lifted: "Sequence[Restriction]"


_JSON: "JsonOutput[JsonLifted]" = JsonOutput()


@click.command("unquarantine-gpu")
@options.gpu_of_host("address")
@options.reason("Reason why the GPU is trusted again, for the event.")
@click.option("--force", is_flag=True, help="Release it although it is not healthy.")
@options.dry_run
@options.one_host
@options.as_json
def command(host: str, address: str, reason: str, force: bool, dry_run: bool, as_json: bool, **where: Any) -> None:
    """End the quarantine of a GPU or VF. It is named by its PCI address.

    Its health is read first: a GPU that is still not healthy stays in quarantine. `list-gpus` shows GPUs in quarantine
    with the finding that caused it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.maintenance.unquarantine_gpu import unquarantine_gpu

    with services(rehearses=dry_run, **where) as opened:
        lifted = unquarantine_gpu(opened, host, address, reason=reason, force=force)
    if as_json:
        _JSON.print({"changed": bool(lifted), "lifted": lifted})
    else:
        for one in lifted:
            say(f"{host} {address}: {'would leave' if dry_run else 'left'} quarantine: {one.reason}")
        if not lifted:
            say(f"{host} {address}: no change, it is in no quarantine")
