# SPDX-License-Identifier: Apache-2.0
"""serve autoscaler: node pools as the node groups of a Kubernetes cluster-autoscaler."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.frame.ending import serve_until_told, stop_on_signals
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, say
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.node_config.autoscaler import AutoscalerConfig

_FILE = click.Path(path_type=Path, dir_okay=False)


_JSON: "JsonOutput[AutoscalerConfig]" = JsonOutput()


@click.command("serve autoscaler")
@options.tenant_of("The tenant that the cluster belongs to.")
@click.option("--cluster", default="main", show_default=True, metavar="NAME", help="The tenant's Kubernetes cluster.")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:8086",
    show_default=True,
    help="Address to serve gRPC on; port 0 takes a free one.",
)
@options.allow_host
@click.option("--key", type=_FILE, metavar="FILE", help="PEM file with the server's private key.")
@click.option("--cert", type=_FILE, metavar="FILE", help="PEM file with the server's certificate.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="PEM file with the authority of clients' certificates.")
@click.option(
    "--client-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name that a client's certificate must have, repeatable.  [default: the tenant's name]",
)
@click.option("--print", "prints", is_flag=True, help="Print the autoscaler's cloud-config and flags and exit.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="Address for --print under which the autoscaler reaches this endpoint."
)
@options.database
@options.as_json
def command(
    tenant: str,
    cluster: str,
    listen: str,
    allowed_hosts: tuple[str, ...],
    key: Path | None,
    cert: Path | None,
    client_ca: Path | None,
    names: tuple[str, ...],
    prints: bool,
    advertise: str | None,
    database: str | None,
    as_json: bool,
) -> None:
    """Serve a tenant's node pools to a Kubernetes cluster-autoscaler. Its provider is externalgrpc.

    One endpoint serves one cluster. It reads and writes the store alone: `vgpuctl controller` makes and deletes the
    VMs. Mutual TLS is needed on any address but loopback. docs/kubernetes.md shows the way to a running pod.
    """
    from vgpuctl.autoscaler.provider import provider_calls
    from vgpuctl.autoscaler.server import serving
    from vgpuctl.autoscaler.tls import ServerTls
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.options.listen_address import listen_address
    from vgpuctl.node_config.autoscaler import autoscaler_config
    from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups

    address, port = listen_address(listen)
    tls = None
    if key is not None and cert is not None and client_ca is not None:
        tls = ServerTls(key, cert, client_ca, names or (tenant,))
    elif key is not None or cert is not None or client_ca is not None or names:
        raise UsageError("TLS needs --key, --cert and --client-ca together", hint="give all three of them, or none")
    with services(database=database) as opened:
        groups = NodeGroups(opened, tenant, cluster)
        if prints:
            config = autoscaler_config(groups.pools(), advertise or listen, has_tls=tls is not None)
            if as_json:
                _JSON.print(config)
            else:
                print_document(config.cloud_config + "".join(f"# {flag}\n" for flag in config.flags), nl=False)
            return
        stop = stop_on_signals()
        with serving(provider_calls(groups), address, port, tls, allowed_hosts) as taken:
            how = "without TLS" if tls is None else f"to {', '.join(tls.names)}"
            say(f"serving the autoscaler of {tenant}/{cluster} on {listen.rpartition(':')[0]}:{taken}, {how}")
            serve_until_told(stop, opened.store)
    say("stopped")
