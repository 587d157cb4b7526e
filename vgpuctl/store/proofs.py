# SPDX-License-Identifier: Apache-2.0
"""Proofs of promises: what was read back of a VM's shares, as evidence. Rows are only added, and go with their VM."""

from sqlalchemy import delete, insert, select

from vgpuctl.model.proof import PromiseVerdict, Proof
from vgpuctl.store import codec, tables
from vgpuctl.store.rows import Rows

_PROOFS = tables.proofs
_KEPT_OF_EACH = 20


class ProofRows(Rows):
    """Add and find proofs."""

    def add_proof(self, proof: Proof) -> None:
        """Keep a proof, and of older ones of the VM only the last few."""
        kept = {PromiseVerdict.KEPT: True, PromiseVerdict.NOT_KEPT: False}.get(proof.verdict)
        self._write(insert(_PROOFS).values(vm_uuid=proof.vm_uuid, at=proof.at, kept=kept, content=codec.encode(proof)))
        query = select(_PROOFS.c.id).where(_PROOFS.c.vm_uuid == proof.vm_uuid).order_by(_PROOFS.c.id.desc())
        for row in self._read(query)[_KEPT_OF_EACH:]:
            self._write(delete(_PROOFS).where(_PROOFS.c.id == row.id))

    def last_proof(self, vm_uuid: str) -> Proof | None:
        """The newest proof of a VM, None without any. Raises StoreUnusable for a damaged row."""
        query = select(_PROOFS.c.content).where(_PROOFS.c.vm_uuid == vm_uuid).order_by(_PROOFS.c.id.desc()).limit(1)
        rows = self._read(query)
        return None if not rows else codec.decode_proof(rows[0].content, what=f"a proof of VM {vm_uuid}")
