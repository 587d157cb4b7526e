# SPDX-License-Identifier: Apache-2.0
"""The choice of the licence pool that a VM takes its seat from. Pure, like the rest of this room."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.catalog.licence_editions import editions_for
from vgpuctl.errors import UsageError
from vgpuctl.model.lease import Share
from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.model.vm import VmRequest


@dataclass(frozen=True)
class WantedSeat:
    """The seat that a VM needs. editions: any of these, the preferred one first. pool: that one only.

    servers: those that the VM's own token names; None where it brings none.
    """

    editions: tuple[Edition, ...]
    pool: str | None = None
    servers: tuple[str, ...] | None = None

    def fits(self, pool: LicencePool) -> bool:
        """True if a seat of this pool would do."""
        return pool.edition in self.editions and self.pool in (None, pool.name) and self.knows_server_of(pool)

    def knows_server_of(self, pool: LicencePool) -> bool:
        """True if the VM's own token, where it brings one, is of the pool's server."""
        return self.servers is None or pool.server is None or pool.server in self.servers


def editions_of(request: VmRequest, shares: Sequence[Share] | None = None) -> tuple[Edition, ...]:
    """Editions that the licence of a VM may be of; empty where it needs none.

    shares: those that it has; without them the profiles that it names answer, as far as it names any.
    Raises UsageError when its GPUs do not run the edition that it asks for, or no edition runs on all of them.
    """
    from vgpuctl.sharing.kind import Takes  # late: every command reads the store, few ask for a licence
    from vgpuctl.sharing.kinds import kind_of

    if shares is None:
        named = [gpu.profile for gpu in request.gpus if gpu.profile is not None]
        has_card = len(named) < len(request.gpus)
    else:
        vgpus = [one for one in shares if kind_of(one.sharing).takes is Takes.VGPU]
        named = [one.profile for one in vgpus]
        has_card = len(vgpus) < len(shares)
    found = editions_for(named, request.licence, has_card=has_card)
    if found is None:
        asked = f"the licence {request.licence}" if request.licence is not None else "one licence"
        raise UsageError(
            f"VM {request.name}: {', '.join(named) or 'its GPU'} cannot run with {asked}",
            hint="leave --licence out, or choose a vGPU type of another series; see docs/licences.md",
        )
    return found


def choose_pool(
    pools: Sequence[LicencePool],
    taken: Mapping[str, int],
    wanted: WantedSeat,
    *,
    last: LicencePool | None = None,
    may_exceed: bool = False,
) -> LicencePool | None:
    """The pool to take a seat from; None where all seats are taken.

    By edition in the order of preference, then the pool of its last seat, the most free seats, the name. taken: seats
    by pool. last: the pool whose token the guest may have; only pools of its server serve such a guest. may_exceed: the
    guest has its licence already.
    """
    fitting = [pool for pool in pools if wanted.fits(pool)]
    if last is not None and last.has_token and wanted.servers is None:
        fitting = [pool for pool in fitting if pool.server in (None, last.server)]

    def free(pool: LicencePool) -> int:
        return pool.seats - taken.get(pool.name, 0)

    ordered = sorted(
        fitting,
        key=lambda pool: (
            free(pool) <= 0,
            wanted.editions.index(pool.edition),
            last is None or pool.name != last.name,
            -free(pool),
            pool.name,
        ),
    )
    best = next(iter(ordered), None)
    return best if best is not None and (free(best) > 0 or may_exceed) else None
