# SPDX-License-Identifier: Apache-2.0
"""show-load-balancer: one load balancer, and which of its VMs answer health checks."""

from typing import TYPE_CHECKING

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.usecases.network.show_load_balancer import ShownBalancer
    from vgpuctl.usecases.running.services import Services

_KIND: "StoredKind[ShownBalancer]" = StoredKind(
    "load balancer", "list-vpc-objects", tenant=options.tenant_of("Tenant that it belongs to.")
)


def _print(shown: "ShownBalancer") -> None:
    spec = shown.load_balancer
    written = dict.fromkeys(filter(None, (spec.address, spec.address6)))
    addresses = [f"[{one}]:{spec.port}" if ":" in one else f"{one}:{spec.port}" for one in written]
    print_line(f"balancer  {shown.tenant}/{spec.name}: {', '.join(addresses)}, {spec.protocol}, in {spec.network}")
    affinity = f"{spec.affinity_s} s" if spec.affinity_s else "none"
    print_line(f"chooses   by {spec.selection}, affinity {affinity}")
    checks = f"{spec.health_interval_s} s, {spec.health_failures} failures of {spec.health_timeout_s} s"
    print_line(f"checks    port {spec.vm_port} every {checks}")
    looked_at = "OVN's southbound database" if shown.not_looked_at is None else f"not looked at: {shown.not_looked_at}"
    print_line(f"states    {looked_at}")
    print_table(
        ["VM", "ADDRESS", "STATE", "WEIGHT"],
        [(one.vm, one.address, one.state, one.weight) for one in shown.members],
        empty="no VM",
    )
    for remark in shown.remarks:
        print_line(f"remark    {remark}")


@_KIND.shows(_print)
def show_load_balancer(opened: "Services", tenant: str, name: str) -> "ShownBalancer":
    """Show one load balancer and which of its VMs answer health checks.

    OVN's southbound database is asked where VGPUCTL_OVN_SOUTHBOUND names it. No host is contacted.
    """
    from vgpuctl.usecases.network.show_load_balancer import show_load_balancer

    return show_load_balancer(opened, tenant, name)
