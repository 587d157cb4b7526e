# SPDX-License-Identifier: Apache-2.0
"""tutorial: a folder with twelve simulated hosts, a store of its own and the files of docs/tutorial.md."""

import os
import shlex
import sys
import time
from importlib.resources import files
from pathlib import Path

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_document, print_json, say
from vgpuctl.local_files import make_folder, write_new

HOSTS = 12
MIX = "a40*2:4,l40s*4:3,a100-pcie-40gb*2:2,t4*2:2,h100-pcie-80gb*2:1"
_FILES = {"vgpuctl.yaml": "vgpuctl.yml", "layout.yml": "layout.yml", "umbrella.yml": "umbrella.yml"}
_ACTIVATE = """\
# Read this into your shell: `. ./activate`
export PATH={programs}:"$PATH" VGPUCTL_LAB_FOLDER={lab}
unset VGPUCTL_INVENTORY VGPUCTL_DATABASE_URL VGPUCTL_CONFIG VGPUCTL_CONTEXT VGPUCTL_TENANT
"""


@click.command("tutorial")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="tutorial")
@options.as_json
def command(folder: Path, as_json: bool) -> None:
    """Start twelve simulated hosts and write the files of the tutorial into FOLDER  [default: tutorial].

    Files that are there stay as they are, and hosts that are up stay up. `vgpuctl lab down` in that folder ends them.
    """
    import vgpuctl_lab as lab

    begun = time.monotonic()
    make_folder(folder, "the tutorial's folder")
    own = lab.LabFolder(folder.absolute() / ".lab")
    lab.simulated.up(HOSTS, mix=MIX, folder=own)
    shipped = files("vgpuctl_lab") / "tutorial"
    texts = {name: (shipped / source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    texts["activate"] = _ACTIVATE.format(
        programs=shlex.quote(str(Path(sys.argv[0]).absolute().parent)), lab=shlex.quote(str(own.path))
    )
    written = [
        name for name, text in texts.items() if write_new(folder / name, text.encode(), "a file of the tutorial")
    ]
    if as_json:
        print_json({"folder": str(folder), "hosts": HOSTS, "written": written})
        return
    say(f"{folder}: {HOSTS} simulated hosts are up after {time.monotonic() - begun:.1f} s")
    print_document(
        f"Go on with:\n  cd {os.path.relpath(folder)}\n  . ./activate\n  vgpuctl allow-config\n  vgpuctl list-hosts\n"
        "and read docs/tutorial.md. `vgpuctl lab down` in that folder ends the hosts."
    )
