# SPDX-License-Identifier: Apache-2.0
"""unquarantine-gpu: a quarantined GPU or VF takes VMs again."""

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model.restriction import Restriction, RestrictionKind, restrictions_on
from vgpuctl.sharing.health import findings_of
from vgpuctl.usecases.maintenance.restricted import find_gpu, lift
from vgpuctl.usecases.observed.gpu_health import describe_findings
from vgpuctl.usecases.running.services import Services


def unquarantine_gpu(
    services: Services, host: str, address: str, *, reason: str, force: bool = False
) -> list[Restriction]:
    """Lift the quarantines of a GPU or VF. Returns what was lifted, none when it is in no quarantine.

    The health of its GPU is read first, and a state that would put it into quarantine again is a StateError. force:
    lift it nevertheless. reason: why it is trusted again, for the event. A quarantine of the inventory stays.
    Raises NotFound for an unknown GPU that no quarantine names, and the host's error when it cannot be read.
    """
    with services.store.reading() as session:
        every = [one for one in session.restrictions() if one.kind is RestrictionKind.QUARANTINE]
    found = [one for one in every if (one.host, one.device) == (host, address)]
    try:
        gpu = find_gpu(services, host, address)
    except NotFound:
        if not found:  # a card that was taken out can still be released by the address that it had
            raise
    else:
        whole = gpu.address == address
        if not force:
            _refuse_sick(services, host, gpu.address)
        found = restrictions_on(every, host, address, gpu.uuid if whole else None)
    with services.store.transaction() as session:
        for one in found:
            lift(session, one, reason)
    return found


def _refuse_sick(services: Services, host: str, address: str) -> None:
    """Raise StateError for a GPU whose state is not healthy now, by the policy of its host."""
    now = services.host(host).agent.health()
    policy = services.inventory.health_policy(host)
    found = [one for one in findings_of(now, address, now) if policy.forbids(one)]
    if found:
        raise StateError(
            f"GPU {address} of {host} is not healthy: {describe_findings(found)}",
            context=[f"{one.code}: {one.text}; {one.remedy}" for one in found],
            hint="solve it, or add --force to let VMs use the GPU as it is",
        )
