# SPDX-License-Identifier: Apache-2.0
"""view: the display of a running VM, in a viewer, a browser, or on a socket of this machine."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.frame.ending import stop_on_signals, wait_until_told
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say

if TYPE_CHECKING:
    from vgpuctl.model.display import DisplayKind
    from vgpuctl.usecases.display.view import OpenedDisplay

_POLL_S = 0.2
_VIEWER = "remote-viewer"


class _JsonAddress(TypedDict, total=False):
    """The address of a display: a URL, with the port where no browser is served, or a socket."""

    url: str
    port: int
    socket: str


class JsonDisplay(_JsonAddress):
    """Where the display of a VM is, on one line before the command waits."""

    vm: str
    kind: "DisplayKind"


_JSON: "JsonOutput[JsonDisplay]" = JsonOutput()


@click.command("view")
@click.argument("name")
@options.tenant
@click.option("--no-viewer", is_flag=True, help="Print the local address and wait, also where a viewer is installed.")
@click.option("--web", is_flag=True, help="Serve noVNC to a browser of this machine and print the address.")
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Listen on a new unix socket, for its owner alone.",
)
@options.seconds("timeout", 120.0, "With --web: seconds until the address is void when no browser opens it.", least=1)
@click.option(
    "--novnc",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder of noVNC's files.  [default: /usr/share/novnc]",
)
@options.one_host
@options.as_json
def command(
    name: str,
    tenant: str,
    no_viewer: bool,
    web: bool,
    path: Path | None,
    timeout_s: float,
    novnc: Path | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Show the display of a running VM. It ends with its viewer, or with Ctrl-C.

    Opens remote-viewer (Debian's package virt-viewer) where there is a desktop and that program, and otherwise prints
    an address for any viewer. The display goes through the host's SSH connection: it listens nowhere on the host, and
    on this machine only for this user. An event tells who opened it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.model.display import DisplayKind
    from vgpuctl.usecases.display.view import view
    from vgpuctl.usecases.found.find_vm import find_vm

    if web and path is not None:
        raise UsageError("--web and --socket exclude each other")
    way = "in a browser" if web else f"on the socket {path}" if path is not None else "on a local port"
    if web:
        from vgpuctl.web.browser_console import NOVNC_FOLDER, require_novnc

        folder = novnc or NOVNC_FOLDER
        require_novnc(folder)
    with services(**where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        display = view(opened, vm, way=way, only=DisplayKind.VNC if web else None)
        stop = stop_on_signals()
        if web:
            _serve_browser(display, folder, timeout_s, stop, as_json=as_json)
        else:
            _serve_viewer(display, path, stop, starts_viewer=not (no_viewer or as_json), as_json=as_json)
    say(f"{vm.printed_name}: the display is closed")


def _serve_viewer(
    display: "OpenedDisplay", path: Path | None, stop: threading.Event, *, starts_viewer: bool, as_json: bool
) -> None:
    from vgpuctl.hosts.graphics_tunnel import GraphicsListener, SocketClient
    from vgpuctl.listening.sockets import LOOPBACK

    def serve(client: Any) -> None:
        display.source.serve(SocketClient(client))

    with GraphicsListener(serve, say, path) as listener:
        url = f"{display.kind}://{LOOPBACK}:{listener.port}"
        viewer = _viewer() if starts_viewer and path is None else None
        if viewer is not None:
            say(f"{display.vm.printed_name}: {viewer} shows {url}")
            _run_viewer([viewer, url], stop)
            return
        _tell(display, {"socket": str(path)} if path is not None else {"url": url, "port": listener.port}, as_json)
        wait_until_told(stop)


def _serve_browser(
    display: "OpenedDisplay", novnc: Path, timeout_s: float, stop: threading.Event, *, as_json: bool
) -> None:
    from vgpuctl.web.browser_console import BrowserConsole

    with BrowserConsole(display.source.serve, say, novnc=novnc, timeout_s=timeout_s) as server:
        _tell(display, {"url": server.url}, as_json)
        while not stop.is_set() and not server.ended.wait(_POLL_S):
            pass


def _tell(display: "OpenedDisplay", address: _JsonAddress, as_json: bool) -> None:
    """Print where the display is, as a line or as JSON of one line, before the command waits."""
    if as_json:
        shown: JsonDisplay = {"vm": display.vm.request.name, "kind": display.kind, **address}
        _JSON.print(shown, indent=None)
    else:
        print_line(*(str(address.get("url") or address["socket"]),))
        say(f"{display.vm.printed_name}: {display.kind}; Ctrl-C ends it")


def _viewer() -> str | None:
    """The viewer to start; None without one, and without a desktop to show it on."""
    has_desktop = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return shutil.which(_VIEWER) if has_desktop else None


def _run_viewer(argv: list[str], stop: threading.Event) -> None:
    from vgpuctl.trusted_programs import judge_program

    judge_program(argv[0])
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not stop.wait(_POLL_S):
            pass
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
