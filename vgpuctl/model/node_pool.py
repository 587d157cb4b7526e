# SPDX-License-Identifier: Apache-2.0
"""Pools of VMs that are nodes of a tenant's Kubernetes or Slurm cluster (reference clusters, sections 1.6 and 6)."""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.constraints import Together
from vgpuctl.model.labels import parse_label_key, parse_label_value
from vgpuctl.model.printable import printable
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import VmRequest, printed_name

USUAL_JOIN_TIMEOUT_S = 900.0
USUAL_DRAIN_S = 300.0
MOST_NODES = 1024
"""Of one pool: far above what one tenant's cluster has, and below what would overload a store in one command."""

_DIGITS = 3
_NODE_NAME = re.compile(r"(?P<pool>[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?)-(?P<number>[0-9]{3,4})")


class NodeRole(StrEnum):
    """The program that joins the VM to its cluster."""

    KUBEADM = "kubeadm"
    K3S = "k3s"
    RKE2 = "rke2"
    SLURM = "slurm"

    @property
    def is_kubernetes(self) -> bool:
        """True for the ways into a Kubernetes cluster."""
        return self is not NodeRole.SLURM


class TaintEffect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True)
class Taint:
    """A taint of a Kubernetes node."""

    key: str
    value: str
    effect: TaintEffect

    def __str__(self) -> str:
        """Write it as kubectl does: `KEY=VALUE:EFFECT`."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class GpuSharing(StrEnum):
    """How the pods of one node share its GPUs. In Slurm `gres.conf` says it."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    HAMI = "hami"


class MigStrategy(StrEnum):
    """How NVIDIA's device plugin names MIG devices."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


@dataclass(frozen=True)
class NodeSharing:
    """How the GPUs of a node are handed to pods. replicas: of each GPU, for time slicing and MPS."""

    how: GpuSharing = GpuSharing.NONE
    replicas: int | None = None
    mig_strategy: MigStrategy = MigStrategy.NONE


class Spread(StrEnum):
    """The rule for hosts of a pool's nodes: different ones where there is room, always different ones, or any."""

    PREFER_APART = "prefer-apart"
    APART = "apart"
    NONE = "none"


JOIN_SECRETS = ("token", "munge_key", "kubeconfig")
"""The fields of ClusterJoin that hold a secret."""


@dataclass(frozen=True)
class ClusterJoin:
    """How a node finds its cluster and is let in. The secrets are sealed in the store, never shown.

    server: `https://HOST:PORT` of k3s and RKE2, `HOST:PORT` of kubeadm, HOST of slurmctld. ca_cert_hash: `sha256:…`,
    for kubeadm. token: the join token. munge_key: of Slurm, in base64. kubeconfig: with which vgpuctl tells the
    cluster; the tenant gives it. token_expires_at: seconds since the epoch, UTC; None where nobody said.
    """

    server: str | None = None
    ca_cert_hash: str | None = None
    token_expires_at: float | None = None
    token: SecretText | None = None
    munge_key: SecretText | None = None
    kubeconfig: SecretText | None = None

    @property
    def secrets(self) -> dict[str, SecretText]:
        """The secrets that there are, by field."""
        values = {name: getattr(self, name) for name in JOIN_SECRETS}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class NodePool:
    """Nodes of one shape: VMs made from one request.

    request: of each node; its name is the pool's, and each node has its own. zone: a part of the cluster's group id.
    minimum, maximum: how many nodes there may be; vgpuctl keeps the minimum there by itself. may_preempt: a node may
    take the shares of preemptible VMs of a lower priority. drain_s: how long a
    node's cluster has to move its work away before the VM stops. join_timeout_s: a node that did not join its cluster
    in this time after its VM started is deleted and counted.
    """

    name: str
    tenant: str
    role: NodeRole
    request: VmRequest
    maximum: int
    minimum: int = 0
    cluster: str = "main"
    zone: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    sharing: NodeSharing = field(default_factory=NodeSharing)
    spread: Spread = Spread.PREFER_APART
    join: ClusterJoin = field(default_factory=ClusterJoin)
    join_timeout_s: float = USUAL_JOIN_TIMEOUT_S
    drain_s: float = USUAL_DRAIN_S
    may_preempt: bool = False

    @property
    def group_id(self) -> str:
        """The id of its node group for the cluster-autoscaler (reference clusters, section 1.6)."""
        return f"{self.tenant}/{self.cluster}/{self.name}/{self.zone}"

    @property
    def printed_name(self) -> str:
        """The pool for events and messages: `TENANT/POOL`."""
        return f"{self.tenant}/{self.name}"

    @property
    def node_names(self) -> list[str]:
        """The names that its nodes may have, in order."""
        return [self.node_name(number) for number in range(1, self.maximum + 1)]

    def node_name(self, number: int) -> str:
        """The name of a node and of its VM: `POOL-001`. number: from 1."""
        return f"{self.name}-{number:0{_DIGITS}d}"

    def number_of(self, node: str) -> int | None:
        """The number in a node's name; None for a name that no new node of this pool gets."""
        found = _NODE_NAME.fullmatch(node)
        if found is None or not self.owns_name(node):
            return None
        number = int(found["number"])
        return number if number <= self.maximum else None

    def owns_name(self, node: str) -> bool:
        """True for a name that a node of this pool may have, also from a time with a higher maximum."""
        found = _NODE_NAME.fullmatch(node)
        if found is None or found["pool"] != self.name:
            return False
        number = int(found["number"])
        return 1 <= number <= MOST_NODES and self.node_name(number) == node

    def provider_id(self, vm_uuid: str) -> str:
        """The provider id of a node, byte for byte as its kubelet and the autoscaler have it."""
        return f"vgpuctl://{self.zone}/{self.tenant}/{vm_uuid}"

    def request_of(self, node: str) -> VmRequest:
        """The request of one node's VM. The nodes of a pool are a group of VMs, unless the request names another.

        Where vgpuctl lets them join, the host name is the node's, and so each has a seed.
        """
        wanted = self.request.constraints
        if self.spread is not Spread.NONE and wanted.group is None:
            wanted = replace(wanted, group=f"node-pool.{self.name}", together=Together(self.spread))
        cloud_init = self.request.cloud_init
        if self.join.server is not None:
            cloud_init = replace(cloud_init, hostname=node)
        return replace(self.request, name=node, tenant=self.tenant, constraints=wanted, cloud_init=cloud_init)


class NodeState(StrEnum):
    """The state of a node, as the store's rows of the node, its VM and the queue give it.

    waiting: its VM waits in the queue, or the controller has not looked yet. creating: its VM is being made or starts.
    joining: its VM runs, and the cluster did not have it yet. ready: it is a member. not-ready: a member that does not
    answer its cluster, or takes no work. stopped: its VM is stopped, or is no longer where it was. leaving: it is
    drained and deleted.
    """

    WAITING = "waiting"
    CREATING = "creating"
    JOINING = "joining"
    READY = "ready"
    NOT_READY = "not-ready"
    STOPPED = "stopped"
    LEAVING = "leaving"


@dataclass(frozen=True)
class Node:
    """A wanted node: it stays until it was let go and its VM is gone. Times are seconds since the epoch, UTC.

    vm_uuid: given when the node is wanted, before there is a VM. jobs: of Slurm, for which it was resumed. running_at:
    when its VM was first seen running. joined_at: when its cluster first had it; is_ready: what the cluster said of it
    at seen_at, None while it never said anything. leaving_at: when it was let go, None while it is wanted, with
    leave_reason. is_drained: its cluster has no work on it any more. wanted_again: it was wanted while it left, so a
    new VM follows.
    """

    tenant: str
    pool: str
    name: str
    vm_uuid: str
    wanted_at: float
    jobs: tuple[str, ...] = ()
    running_at: float | None = None
    joined_at: float | None = None
    is_ready: bool | None = None
    seen_at: float | None = None
    leaving_at: float | None = None
    leave_reason: str | None = None
    is_drained: bool = False
    wanted_again: bool = False

    @property
    def is_leaving(self) -> bool:
        """True if it was let go."""
        return self.leaving_at is not None

    @property
    def printed_name(self) -> str:
        """The node for events: as its VM's."""
        return printed_name(self.tenant, self.name)


def parse_taint(text: str, /, *, what: str = "taint") -> Taint:
    """Read `KEY=VALUE:EFFECT` or `KEY:EFFECT`. Raises UsageError."""
    left, colon, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    try:
        wanted = TaintEffect(effect)
    except ValueError:
        wanted = None
    if not colon or wanted is None:
        raise UsageError(
            f"{what}: '{printable(text[:80])}' is no taint",
            hint=f"write KEY=VALUE:EFFECT with an effect of {', '.join(TaintEffect)}",
        )
    return Taint(parse_label_key(key, what=what), parse_label_value(value, what=what), wanted)


def parse_pool_name(text: str, /, *, what: str = "node pool") -> str:
    """Read the name of a pool or cluster, which begins the names of nodes: a DNS label of at most 42 characters.

    Raises UsageError.
    """
    if _NODE_NAME.fullmatch(f"{text}-001") is None:
        raise UsageError(
            f"{what} '{printable(text[:60])}' cannot be used: the names of nodes begin with it",
            hint="1 to 42 small letters, digits and '-', the first and last a letter or digit: gpu, a40-8q",
        )
    return text
