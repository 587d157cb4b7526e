# SPDX-License-Identifier: Apache-2.0
"""Proofs of promises: what was read back of a VM's shares, as evidence. Rows are only added, and go with their VM."""

from typing import TYPE_CHECKING

from vgpuctl.store import codec
from vgpuctl.store.rows import Rows

if TYPE_CHECKING:
    from vgpuctl.model.proof import Proof

_KEPT_OF_EACH = 20


class ProofRows(Rows):
    """Add and find proofs."""

    def add_proof(self, proof: "Proof") -> None:
        """Keep a proof, and of older ones of the VM only the last few."""
        from vgpuctl.model.proof import PromiseVerdict

        kept = {PromiseVerdict.KEPT: True, PromiseVerdict.NOT_KEPT: False}.get(proof.verdict)
        self._insert("proofs", vm_uuid=proof.vm_uuid, at=proof.at, kept=kept, content=codec.encode(proof))
        of_vm = "SELECT id FROM proofs WHERE vm_uuid = :vm_uuid ORDER BY id DESC"
        for row in self._read(of_vm, vm_uuid=proof.vm_uuid)[_KEPT_OF_EACH:]:
            self._delete("proofs", id=row.id)

    def last_proof(self, vm_uuid: str) -> "Proof | None":
        """The newest proof of a VM, None without any. Raises StoreUnusable for a damaged row."""
        rows = self._find("proofs", order="id DESC LIMIT 1", vm_uuid=vm_uuid)
        return None if not rows else codec.decode_proof(rows[0].content, what=f"a proof of VM {vm_uuid}")
