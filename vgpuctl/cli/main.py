# SPDX-License-Identifier: Apache-2.0
"""The command's entry: finds the subcommand's module by name, and is the only place that ends the process on an error.

Importing this module imports click and nothing else of ours but errors: `vgpuctl --help` stays quick.
"""

import importlib
import json
import os
import signal
import sys
from typing import Any

import click

from vgpuctl import __version__
from vgpuctl.errors import Interrupted, VgpuctlError

COMMANDS = {
    "adopt-host": "Take over what runs on a host as it is.",
    "apply-hosts": "Bring every host into its declared layout.",
    "cancel-reservation": "Cancel a reservation.",
    "check-hosts": "Check hosts for drift and for the known failure modes.",
    "capacity": "Count how many more VMs of one kind fit.",
    "console": "Connect this terminal to a VM's serial console.",
    "controller": "Serve the queue and end VMs whose time is over, until it is stopped.",
    "create-certificate": "Make keys and certificates for OVN's databases.",
    "create-direct-line": "Join a tenant's network with a line that the tenant brings.",
    "create-floating-address": "Give a VM an outside address of its own.",
    "create-gateway": "Give a tenant's networks a way out.",
    "create-load-balancer": "Share connections among a tenant's VMs.",
    "create-network": "Create a tenant's network.",
    "create-outside": "Declare a network behind the tenants' gateways.",
    "create-peering": "Join two tenants' networks.",
    "create-pool": "Make a pool of hosts that only some tenants may use.",
    "create-port-forward": "Send a port of the gateway's address on to a VM.",
    "create-security-group": "Create a named allow-list for a tenant's VMs.",
    "create-security-rule": "Let more into the VMs of a security group.",
    "create-tenant": "Add a tenant to the store.",
    "create-vm": "Create a tenant's VM with its GPU slices and start it.",
    "delete-direct-line": "Take a tenant's own line out of a network.",
    "delete-floating-address": "Take a VM's outside address back.",
    "delete-gateway": "Take a tenant's way out away.",
    "delete-load-balancer": "Delete load balancers.",
    "delete-network": "Delete a tenant's networks.",
    "delete-outside": "Delete a network behind the tenants' gateways.",
    "delete-peering": "Join two tenants' networks no more.",
    "delete-pool": "Delete a pool; its hosts serve every tenant again.",
    "delete-port-forward": "Close ports of the gateway's address.",
    "delete-security-group": "Delete security groups.",
    "delete-security-rule": "Let less into the VMs of a security group.",
    "delete-vm": "Delete VMs and give their devices back to the pool.",
    "grant-pool": "Let tenants use a pool of hosts.",
    "explain-vm": "Tell why a VM fits where it does, or nowhere.",
    "export-layout": "Write a host's declared layout as another tool's file.",
    "import-layout": "Turn another tool's file into a declared layout.",
    "inspect-host": "Show everything that was found on a host.",
    "lab": "Emulated GPU hosts to rehearse on.",
    "leave-queue": "Take a VM out of the queue.",
    "list-gpus": "List the GPUs of all hosts.",
    "list-hosts": "List the hosts of the inventory and how they answer.",
    "list-networks": "List the tenants' networks.",
    "list-outsides": "List the networks behind the tenants' gateways.",
    "list-pools": "List the pools of hosts and who may use them.",
    "list-profiles": "List the vGPU types and what can still be created.",
    "list-queue": "List the VMs that wait for their turn.",
    "list-reservations": "List what is reserved, and when.",
    "list-tenants": "List the tenants, their quotas and what they use.",
    "list-vms": "List the VMs of the store.",
    "list-vpc-objects": "List gateways, security groups, balancers and the like.",
    "offboard-tenant": "Take back everything of a tenant.",
    "onboard": "Make a tenant what its file says.",
    "plan-hosts": "Show what would bring every host into its declared layout.",
    "render-vm": "Print the domain XML of a VM without creating it.",
    "repair": "Finish or take back what an interrupted run left.",
    "reserve": "Reserve GPU slices for a time.",
    "set-queue": "Choose who comes first in the queue.",
    "set-quota": "Change what a tenant may use.",
    "show-inventory": "Show hosts, groups and variables of the inventory.",
    "show-network": "Show one network: its addresses and who has them.",
    "show-usage": "Show what tenants used.",
    "show-vm": "Show one VM: its lease, its domain and its devices.",
    "start-vm": "Start a stopped VM.",
    "stop-vm": "Stop a VM and keep or release its GPU slices.",
}


class _LazyGroup(click.Group):
    """A group whose commands are modules, imported only when run or asked for help."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"vgpuctl.cli.{name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=3)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", context) from None

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="vgpuctl")
def command() -> None:
    """Share GPUs of KVM hosts among tenants' VMs.

    Hosts come from an Ansible-style inventory (-i, or VGPUCTL_INVENTORY) and are reached over SSH.
    Data goes to stdout, everything else to stderr; every command has --json.
    """


def main() -> None:
    """Run the command line and end the process with a documented exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line. Returns its exit code (docs/errors.md)."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result: Any = command.main(args=arguments, prog_name="vgpuctl", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort:
        return _report(Interrupted("stopped: no answer was given, or Ctrl-C was pressed"), arguments)
    except KeyboardInterrupt:
        return _report(
            Interrupted("interrupted", hint="`vgpuctl repair` shows and mends what an interrupted run left"), arguments
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except VgpuctlError as error:
        return _report(error, arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _report(error: VgpuctlError, arguments: list[str]) -> int:
    if "--json" in arguments:
        described = {
            "reference": error.reference,
            "message": error.message,
            "context": list(error.context),
            "hint": error.hint,
        }
        click.echo(json.dumps({"error": described}), err=True)
        return error.exit_code
    styled = not os.environ.get("NO_COLOR") and sys.stderr.isatty()
    click.echo(f"{click.style('error', fg='red', bold=True) if styled else 'error'}: {error.message}", err=True)
    for line in error.context:
        click.echo(f"  {line}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)
    return error.exit_code
