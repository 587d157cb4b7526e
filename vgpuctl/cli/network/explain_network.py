# SPDX-License-Identifier: Apache-2.0
"""explain-network: whether traffic passes, and which security rule decides."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.model.security_rule import RuleAction

if TYPE_CHECKING:
    from vgpuctl.usecases.network.explain_network import ExplainedTraffic, RuleDecision
    from vgpuctl.usecases.network.network_ends import NetworkEnd

_JSON: "JsonOutput[ExplainedTraffic]" = JsonOutput()
_OUTCOMES = {True: "allowed", False: "not allowed", None: "unknown"}
_WORDS = {RuleAction.ALLOW: "allowed", RuleAction.DENY: "denied", RuleAction.REJECT: "rejected"}


@click.command("explain-network")
@click.argument("sender", metavar="FROM")
@click.argument("receiver", metavar="TO")
@click.argument("traffic", metavar="TRAFFIC")
@options.tenant_of("Tenant whose VM sends or receives.")
@options.database
@options.as_json
def command(sender: str, receiver: str, traffic: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Explain whether traffic passes between VMs, and which rule decides. Nothing is sent.

    FROM and TO are a VM, an IP address, or `outside`; TRAFFIC is tcp/443, udp/53, icmp or icmp/TYPE. ovn-trace
    follows the packet through the flows of OVN's southbound database (VGPUCTL_OVN_SOUTHBOUND). Without this database
    the store answers what it knows, and the answer says so.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.security_decisions import parse_traffic
    from vgpuctl.usecases.network.explain_network import explain_network

    wanted = parse_traffic(traffic)
    with services(database=database) as opened:
        explained = explain_network(opened, tenant, sender, receiver, wanted)
    if as_json:
        _JSON.print(explained)
        return
    _show(explained)


def _show(explained: "ExplainedTraffic") -> None:
    outcome = _OUTCOMES[explained.is_allowed] + f": {explained.reason}" * bool(explained.reason)
    print_line(f"{explained.traffic} from {_end(explained.sender)} to {_end(explained.receiver)}: {outcome}")
    if explained.decisions:
        rows = [(one.direction, one.vm, _WORDS[one.action], _why(one)) for one in explained.decisions]
        print_table(("DIRECTION", "VM", "OUTCOME", "DECIDED BY"), rows, empty="")
    if explained.way:
        print_line(f"way: {', '.join(explained.way)}")
    if explained.route:
        print_line(f"route: {explained.route}")
    print_line(f"answered by: {explained.answered_by}")
    for remark in explained.remarks:
        say(remark)


def _end(one: "NetworkEnd") -> str:
    if one.vm is None:
        return f"{one.address} (outside)" if one.name != one.address else one.address
    return f"{one.vm} ({one.address}, {one.network})"


def _why(one: "RuleDecision") -> str:
    return one.reason if one.rule is None else f"rule {one.rule} of security group {one.group}"
