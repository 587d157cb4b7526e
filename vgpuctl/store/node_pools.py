# SPDX-License-Identifier: Apache-2.0
"""Node pools and the nodes that are wanted. A wanted node is a row here, and an entry of the queue until its VM is
there."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vgpuctl.errors import NotFound, StoreUnusable
from vgpuctl.model.secret_text import SecretText
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given
from vgpuctl.store.queue import QueueRows
from vgpuctl.store.sealed import documents_of, with_documents

if TYPE_CHECKING:  # imported with the first row of it
    from vgpuctl.model.node_pool import Node, NodePool

_JOIN = ""
"""The key of the join secrets among the sealed texts; no VM has this name."""
_SEEN = ("running_at", "joined_at", "is_ready", "seen_at")
_LEAVING = ("leaving_at", "leave_reason", "is_drained", "wanted_again", "jobs")


class NodePoolRows(QueueRows):
    """Add, change and delete node pools; want nodes, note what becomes of them, and forget them."""

    def node_pools(self, tenant: str | None = None) -> "list[NodePool]":
        """The pools of a tenant, or all, by tenant and name."""
        return [_pool(row) for row in self._find("node_pools", order="tenant, name", **given(tenant=tenant))]

    def node_pool(self, tenant: str, name: str) -> "NodePool":
        """One pool. Raises NotFound with the names there are."""
        pools = self.node_pools(self.tenant(tenant).name)
        for pool in pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(
            f"tenant {tenant} has no node pool {name!r} in the store {self._store_name}",
            hint=f"there are {known}" if known else f"create it first: vgpuctl create-node-pool {tenant}/{name}",
        )

    def put_node_pool(self, pool: "NodePool") -> None:
        """Add a pool, or replace one, with the secrets whose content is at hand, sealed.

        Raises NotFound for the tenant, StoreUnusable for secrets without a key.
        """
        self.tenant(pool.tenant)
        texts = dict(documents_of([pool.request]))
        join = {name: secret.reveal() for name, secret in pool.join.secrets.items() if secret.has_content()}
        if join:
            texts[_JOIN] = join
        self._put(
            "node_pools",
            _key(pool),
            new={"created_at": self._clock(), "never_joined": 0},
            spec=codec.encode(pool),
            spec_version=codec.NODE_POOL_VERSION,
            secrets=self._key_file.seal(texts, what=_what(pool)) if texts else None,
        )

    def with_pool_secrets(self, pool: "NodePool") -> "NodePool":
        """The pool with the content of its secrets. Raises StoreUnusable without the key, or for another's row."""
        from vgpuctl.model.node_pool import JOIN_SECRETS

        for row in self._find("node_pools", **_key(pool)):
            if row.secrets is None:
                return pool
            texts = self._key_file.open(row.secrets, what=_what(pool))
            found = {name: SecretText.of(text) for name, text in texts.get(_JOIN, {}).items()}
            if any(name not in JOIN_SECRETS or getattr(pool.join, name) != one for name, one in found.items()):
                raise StoreUnusable(
                    f"the sealed secrets of node pool {pool.printed_name} are not its own",
                    hint="somebody changed the row; set them again with `vgpuctl set-node-pool`",
                )
            join: Any = replace(pool.join, **found)  # type: ignore[arg-type]  # the names of JOIN_SECRETS
            return replace(pool, request=with_documents(pool.request, texts), join=join)
        return pool

    def delete_node_pool(self, pool: "NodePool") -> None:
        """Delete a pool that has no nodes."""
        self._delete("node_pools", **_key(pool))

    def never_joined(self, pool: "NodePool") -> tuple[int, float | None]:
        """How many nodes in succession never joined their cluster, and when the last one was given up."""
        for row in self._find("node_pools", **_key(pool)):
            return row.never_joined, row.never_joined_at
        return 0, None

    def note_never_joined(self, pool: "NodePool", count: int) -> None:
        """Note how many nodes in succession never joined, the last one now; 0 when one has joined."""
        at = self._clock() if count else None
        self._update("node_pools", _key(pool), never_joined=count, never_joined_at=at)

    def least_allocatable(self, tenant: str, name: str) -> dict[str, int]:
        """The least that ready nodes of a pool had for pods, as last seen; empty where none was seen.

        CPUs in thousandths, memory and storage in bytes, by the names of Kubernetes' resources.
        """
        for row in self._find("node_pools", tenant=tenant, name=name):
            return codec.decode_amounts(row.least_allocatable, what=f"node pool {tenant}/{name}")
        return {}

    def note_least_allocatable(self, pool: "NodePool", amounts: Mapping[str, int]) -> None:
        """Replace it."""
        self._update("node_pools", _key(pool), least_allocatable=codec.encode(dict(sorted(amounts.items()))))

    def nodes(self, tenant: str | None = None, pool: str | None = None) -> "list[Node]":
        """The wanted and leaving nodes of a pool, a tenant, or all, by name."""
        return [_node(row) for row in self._find("nodes", order="tenant, name", **given(tenant=tenant, pool=pool))]

    def node(self, tenant: str, name: str) -> "Node | None":
        """One node; None for an unknown name."""
        return next(map(_node, self._find("nodes", tenant=tenant, name=name)), None)

    def node_of_vm(self, vm_uuid: str) -> "Node | None":
        """The node of a VM; None for any other VM."""
        return next(map(_node, self._find("nodes", vm_uuid=vm_uuid)), None)

    def node_uuids(self, tenant: str, names: Sequence[str]) -> dict[str, str]:
        """The UUIDs that the VMs of these names get, as far as they are wanted nodes."""
        rows = self._find("nodes", tenant=tenant, name=list(names), leaving_at=None)
        return {row.name: row.vm_uuid for row in rows}

    def add_node(self, node: "Node") -> None:
        """Add a wanted node. Raises ConcurrentChange when the tenant has a node of this name."""
        self._insert(
            "nodes",
            tenant=node.tenant,
            name=node.name,
            pool=node.pool,
            vm_uuid=node.vm_uuid,
            wanted_at=node.wanted_at,
            jobs=codec.encode(node.jobs),
            is_drained=False,
            wanted_again=False,
            conflict=f"another run has just asked for node {node.printed_name}",
        )

    def note_node_seen(self, node: "Node") -> None:
        """Note what was seen of a node: running, joined, ready, and when."""
        self._update("nodes", _is(node), **{name: getattr(node, name) for name in _SEEN})

    def note_node_leaving(self, node: "Node") -> None:
        """Note that a node is let go, whether it is drained, and whether it is wanted again; and its jobs."""
        values = {name: getattr(node, name) for name in _LEAVING} | {"jobs": codec.encode(node.jobs)}
        if node.leave_reason is not None:
            values["leave_reason"] = codec.plain_text(node.leave_reason)
        self._update("nodes", _is(node), **values)

    def delete_node(self, node: "Node") -> bool:
        """Forget a node. Returns False when another run has forgotten or replaced it."""
        return self._delete("nodes", **_is(node)) == 1


def _key(pool: "NodePool") -> dict[str, Any]:
    return {"tenant": pool.tenant, "name": pool.name}


def _is(node: "Node") -> dict[str, Any]:
    return {"tenant": node.tenant, "vm_uuid": node.vm_uuid}


def _what(pool: "NodePool") -> str:
    return f"the secrets of node pool {pool.printed_name}"


def _pool(row: Row) -> "NodePool":
    what = f"node pool {row.tenant}/{row.name}"
    return codec.decode_node_pool(row.spec, row.spec_version, what=what)


def _node(row: Row) -> "Node":
    from vgpuctl.model.node_pool import Node

    return Node(
        row.tenant,
        row.pool,
        row.name,
        row.vm_uuid,
        row.wanted_at,
        codec.decode_texts(row.jobs, what=f"jobs of node {row.tenant}/{row.name}"),
        row.running_at,
        row.joined_at,
        row.is_ready,
        row.seen_at,
        row.leaving_at,
        row.leave_reason,
        bool(row.is_drained),
        bool(row.wanted_again),
    )
