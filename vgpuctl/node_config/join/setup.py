# SPDX-License-Identifier: Apache-2.0
"""The way of one node into its cluster, by the role of its pool. The image has the cluster's software, never vgpuctl.

The files are written by a script of the seed's vendor-data (guests/seed/image.py), so that the user's own
user-data stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpuctl.errors import StateError
from vgpuctl.model.node_pool import NodePool, NodeRole
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.times import format_time_to_second
from vgpuctl.node_config.join.files import Joining, NodeFile, SecretWriter, kubeadm_files, rancher_files, slurm_files

_NEEDED = {
    NodeRole.KUBEADM: ("server", "token", "ca_cert_hash"),
    NodeRole.K3S: ("server", "token"),
    NodeRole.RKE2: ("server", "token"),
    NodeRole.SLURM: ("server", "munge_key"),
}
_FLAGS = {
    "server": "--join-server",
    "token": "--join-token",
    "ca_cert_hash": "--ca-cert-hash",
    "munge_key": "--munge-key",
}
_SERVICES = {
    NodeRole.KUBEADM: "kubelet",
    NodeRole.K3S: "k3s-agent",
    NodeRole.RKE2: "rke2-agent",
    NodeRole.SLURM: "slurmd",
}
_WRITERS: dict[NodeRole, Callable[[Joining, SecretWriter], tuple[NodeFile, ...]]] = {
    NodeRole.KUBEADM: kubeadm_files,
    NodeRole.K3S: rancher_files,
    NodeRole.RKE2: rancher_files,
    NodeRole.SLURM: slurm_files,
}


@dataclass(frozen=True)
class NodeSetup:
    """All that a guest needs to join. name: of the node. pool: its label. service: which is started, last.

    has_gpu: the container runtime is set up for it first. waits_for_guest: it joins only when the script that sets the
    guest up for its GPU has ended well. waits_for_licence: it joins once the driver has a licence.
    """

    name: str
    pool: str
    role: NodeRole
    service: str
    files: tuple[NodeFile, ...]
    waits_for_guest: bool = False
    has_gpu: bool = False
    waits_for_licence: bool = False


def has_join(pool: NodePool) -> bool:
    """True if vgpuctl lets the pool's nodes join; without a server the image or its user-data does."""
    return pool.join.server is not None


def refuse_incomplete(pool: NodePool) -> None:
    """Raise StateError for a pool that has a server to join and not all that its role needs."""
    missing = [name for name in _NEEDED[pool.role] if getattr(pool.join, name) is None]
    if missing:
        raise StateError(
            f"the nodes of pool {pool.printed_name} cannot join their cluster: it has no {', no '.join(missing)}",
            hint=f"give it: vgpuctl set-node-pool {pool.tenant}/{pool.name}"
            f" {' '.join(_FLAGS[name] for name in missing)} …",
        )


def refuse_expired(pool: NodePool, now: float) -> None:
    """Raise StateError for a pool whose join token has expired. now: seconds since the epoch."""
    end = pool.join.token_expires_at
    if has_join(pool) and end is not None and end <= now:
        raise StateError(
            f"the join token of node pool {pool.printed_name} has expired at {format_time_to_second(end)}: "
            "no node is made",
            hint=f"make a new one in the cluster, then `vgpuctl set-node-pool {pool.tenant}/{pool.name}"
            " --join-token FILE --token-expires TIME`",
        )


def refuse_to_join(pool: NodePool, now: float) -> None:
    """Raise StateError for a pool whose nodes could not join. now: seconds since the epoch."""
    if has_join(pool):
        refuse_incomplete(pool)
        refuse_expired(pool, now)


def node_setup(joining: Joining, write: SecretWriter) -> NodeSetup:
    """The set-up of one node. write: gives the text of a secret, or its digest where people see it.

    Raises StateError for an incomplete pool.
    """
    pool = joining.pool
    refuse_incomplete(pool)
    request = pool.request
    has_licence = request.licence is not None or request.licence_pool is not None
    return NodeSetup(
        joining.name,
        pool.printed_name,
        pool.role,
        _SERVICES[pool.role],
        _WRITERS[pool.role](joining, write),
        waits_for_guest=request.guest_driver.is_wanted(),
        has_gpu=bool(request.gpus) and pool.role.is_kubernetes,
        waits_for_licence=has_licence and request.guest_driver.is_wanted(),
    )


def show_digest(secret: SecretText) -> str:
    """Write a secret for people: its digest."""
    return secret.digest


def write_for_guest(secret: SecretText) -> str:
    """Write a secret for the guest: its text."""
    return secret.reveal()
