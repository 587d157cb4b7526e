# SPDX-License-Identifier: Apache-2.0
"""console: this terminal on a VM's serial console, or what it printed so far."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_raw, say


class JsonConsole(TypedDict):
    """The log of a VM's console, with --log."""

    vm: str
    console: str


_JSON: "JsonOutput[JsonConsole]" = JsonOutput()


@click.command("console")
@click.argument("name")
@options.tenant
@click.option("--log", "only_log", is_flag=True, help="Print what the guest wrote so far and end.")
@click.option("--raw", is_flag=True, help="Pass on every control sequence that the guest sends.")
@click.option("--force", is_flag=True, help="Throw out another session that has the console.")
@options.one_host
@options.as_json
def command(name: str, tenant: str, only_log: bool, raw: bool, force: bool, as_json: bool, **where: Any) -> None:
    """Connect this terminal to a VM's serial console; Ctrl-] leaves it.

    Colours and cursor movements of the guest are obeyed; window titles, the clipboard, and printing are not.
    With --log every control sequence is shown as text, such as `\\x1b`. --raw passes everything on as it is.
    With --json (which needs --log) the console's text is one JSON string.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.guests.terminal_filter import TerminalFilter
    from vgpuctl.usecases.display.console import console, read_console_log
    from vgpuctl.usecases.found.find_vm import find_vm

    if as_json and not only_log:
        raise UsageError("--json needs --log: a live console is no document")
    with services(**where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        if only_log:
            log = read_console_log(opened, vm)
            if as_json:
                _JSON.print({"vm": name, "console": log.decode(errors="replace")})
            elif raw:
                print_raw(log)
            else:
                print_document(log.decode(errors="replace"), nl=False)
            return
        live = console(opened, vm, force=force)
        say(f"connected to {vm.printed_name} on {vm.host}; Ctrl-] leaves")
        passing = TerminalFilter(sys.stdout.encoding)
        with raw_terminal():
            ended = live.attach(sys.stdin.fileno(), sys.stdout.fileno(), show=bytes if raw else passing.feed)
        if not raw and sys.stdout.isatty():
            print_raw(passing.leave())
        say("")
        say(f"{vm.printed_name}: console {ended}")


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Every key goes to the guest while the block runs; without a terminal nothing changes."""
    if not os.isatty(sys.stdin.fileno()):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    # Not the default, which throws away what was typed while the console was being opened.
    tty.setraw(sys.stdin.fileno(), termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
