# SPDX-License-Identifier: Apache-2.0
"""serve extender: the scheduler extender of a Kubernetes cluster."""

import threading
from collections.abc import Mapping
from pathlib import Path

import click

from vgpuctl.cli.frame.ending import stop_on_signals, wait_until_told
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, say

_JSON: "JsonOutput[Mapping[str, object]]" = JsonOutput()


@click.command("serve extender")
@options.listen("127.0.0.1:9638")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Access to the API server.  [default: the service account of the pod it runs in]",
)
@options.web_config
@options.allow_host
@click.option("--insecure-listen", is_flag=True, help="Allow an address that others reach without TLS and a login.")
@options.seconds("refresh", 5.0, "Seconds between two readings of nodes and pods.", least=0.1, most=300)
@options.seconds(
    "lock-wait", 3.0, "Seconds that a bind waits until HAMi's plugin has taken the node's last pod.", most=60
)
@options.seconds("gang-wait", 20.0, "Seconds that a member of a gang waits in its bind for the others.", most=300)
@click.option(
    "--policy",
    default="fragmentation",
    show_default=True,
    metavar="POLICY",
    help="Placement policy that values what is left of a node.",
)
@click.option("--other-scheduler", is_flag=True, help="Start although HAMi's own scheduler runs in the cluster.")
@click.option("--print-config", metavar="URL", help="Print the KubeSchedulerConfiguration for this URL and exit.")
@options.as_json
def command(
    listen: str,
    kubeconfig: Path | None,
    web_config: Path | None,
    allowed_hosts: tuple[str, ...],
    insecure_listen: bool,
    refresh_s: float,
    lock_wait_s: float,
    gang_wait_s: float,
    policy: str,
    other_scheduler: bool,
    print_config: str | None,
    as_json: bool,
) -> None:
    """Place pods that ask for parts of GPUs, for kube-scheduler. They ask by gpumem and gpucores. It runs until
    interrupted.

    kube-scheduler calls it to filter, prioritize, bind and preempt; HAMi's device plugin carries the decision out.
    The state is read from the API server, so it may be restarted at any time. docs/extender.md has the setup.
    """
    from datetime import datetime

    from vgpuctl.cli.options.listen_address import listen_address
    from vgpuctl.clusters.kubernetes.gpu_api import GpuApi
    from vgpuctl.model.policy import parse_policy
    from vgpuctl.usecases.kubernetes.scheduler_config import scheduler_config, scheduler_config_yaml
    from vgpuctl.usecases.kubernetes.serve_extender import Extender
    from vgpuctl.web.connections import ConnectionThreads
    from vgpuctl.web.extender_app import EXTENDER, MOST_CALLS, extender_app
    from vgpuctl.web.protection import Protection, refuse_unprotected
    from vgpuctl.web.server import serving

    address, port = listen_address(listen)
    longest_s = lock_wait_s + gang_wait_s
    if print_config is not None:
        config = scheduler_config(print_config, longest_s)
        if as_json:
            _JSON.print(config)
        else:
            print_document(scheduler_config_yaml(config), nl=False)
        return
    chosen = parse_policy(policy)
    protection = Protection(web_config, warn=say, allowed_hosts=allowed_hosts)
    refuse_unprotected(address, protection, is_allowed=insecure_listen)
    stop = stop_on_signals()
    extender = Extender(
        GpuApi(kubeconfig),
        lambda: datetime.now().astimezone(),
        policy=chosen,
        lock_wait_s=lock_wait_s,
        gang_wait_s=gang_wait_s,
    )
    if not other_scheduler:
        extender.require_only_scheduler()
    extender.refresh()
    for problem in extender.problems():
        say(f"warning: {problem}")
    fresh = threading.Thread(target=extender.keep_fresh, args=(refresh_s,), name="refresh", daemon=True)
    fresh.start()
    threads = ConnectionThreads(
        most=MOST_CALLS, most_of_client=MOST_CALLS, request_s=longest_s + 60, refusals=protection.refusals
    )
    app = extender_app(extender, stale_s=max(60.0, 6 * refresh_s), refusals=protection.refusals)
    try:
        with serving(app, address, port, protection, threads, EXTENDER) as taken:
            scheme = "http" if protection.context is None else "https"
            where = f"{scheme}://{listen.rpartition(':')[0]}:{taken}/v1"
            if as_json:
                _JSON.print({"url": where, **extender.counts()})
            say(f"serving on {where}")
            wait_until_told(stop)
            extender.stop()
    finally:
        extender.stop()
        fresh.join(refresh_s + 30)
    say("stopped")
