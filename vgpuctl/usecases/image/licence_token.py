# SPDX-License-Identifier: Apache-2.0
"""The token of a VM's licence pool on its way into the seed. Neither the VM's row nor any answer has it."""

from dataclasses import replace

from vgpuctl.errors import StateError, UsageError
from vgpuctl.model.licence import LicencePool
from vgpuctl.model.times import format_time_to_second
from vgpuctl.model.vm import Vm
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import token_claims


def with_licence_token(services: Services, vm: Vm) -> Vm:
    """The VM with the token of the pool that it holds a seat of, or held last, for its seed alone; its own token wins.

    Raises StoreUnusable when the token is sealed with another key.
    """
    with services.store.reading() as session:
        pool = session.last_licence_pool(vm.uuid)
        return vm if pool is None else with_token_of(session, vm, session.licence_pool(pool))


def refuse_expired_token(vm: Vm, now: float) -> None:
    """Raise StateError for a VM to be created whose token has expired: its guest keeps this token, and gets no licence.

    A token that cannot be read is left to the guest.
    """
    token = vm.request.cloud_init.licence_token
    if token is None or not token.has_content():
        return
    try:
        end = token_claims(token).expires_at
    except UsageError:
        return
    if end is not None and end <= now:
        raise StateError(
            f"VM {vm.request.name} would get no licence: its client configuration token has expired at"
            f" {format_time_to_second(end)}",
            hint="create a new token on the licence server, then `vgpuctl set-licence-pool POOL --token FILE`, or put"
            " it into the tenant's file",
        )


def with_token_of(session: Session, vm: Vm, pool: LicencePool | None) -> Vm:
    """The VM with the token of a pool, if that has one and the VM brings none."""
    cloud_init = vm.request.cloud_init
    if pool is None or not pool.has_token or cloud_init.licence_token is not None:
        return vm
    token = session.licence_token(pool.name)
    if token is None:
        return vm
    seeded = replace(cloud_init, licence_token=token)
    return replace(vm, request=replace(vm.request, cloud_init=seeded))
