# SPDX-License-Identifier: Apache-2.0
"""record-host: a capture of a host for the lab, with its names replaced."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_table, say

if TYPE_CHECKING:
    from vgpuctl.model.capture import CaptureManifest


class JsonRecording(TypedDict):
    """A capture that was written. replacements: with --show, kind, value and what stands for it."""

    file: str
    size_bytes: int
    manifest: "CaptureManifest"
    replacements: NotRequired[Sequence[tuple[str, str, str]]]


_JSON: "JsonOutput[JsonRecording]" = JsonOutput()


@click.command("record-host")
@click.argument("host")
@click.option(
    "--to",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the capture, for example a40.capture.json.gz.",
)
@click.option("--note", default="", metavar="TEXT", help="A sentence about the host, to be read with the capture.")
@click.option("--show", is_flag=True, help="List every value that was replaced, with its replacement.")
@options.one_host
@options.as_json
def command(host: str, file: Path, note: str, show: bool, as_json: bool, **where: Any) -> None:
    """Record what vgpuctl reads of a host, for the lab to replay. FILE gets it with names replaced.

    The lab replays the file: the option --from of `vgpuctl lab up`. Nothing is changed on HOST, and no lock is taken.
    Names of hosts, VMs, tenants and users, addresses, UUIDs, serial numbers and secrets are replaced; of command lines,
    logs and VM definitions only the parts that vgpuctl looks at are kept. Look at the result before you send it
    (docs/captures.md).
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.host.record_host import record_host

    with services(**where) as opened:
        done = record_host(opened, host, file, note=note)
    counts = {one.kind: one.count for one in done.manifest.replaced}
    if as_json:
        recording: JsonRecording = {
            "file": str(done.file),
            "size_bytes": done.size_bytes,
            "manifest": done.manifest,
        }
        if show:
            recording["replacements"] = done.replaced
        _JSON.print(recording)
        return
    if show:
        print_table(
            ["KIND", "VALUE", "REPLACEMENT"], [list(one) for one in done.replaced], empty="nothing was replaced"
        )
    else:
        print_table(["REPLACED", "VALUES"], sorted(counts.items()), empty="nothing was replaced")
    say(
        f"{done.file}: {done.size_bytes} bytes, {counted(len(done.manifest.boards), 'GPU')}; read it before you send it"
    )
