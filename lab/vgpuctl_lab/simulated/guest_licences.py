# SPDX-License-Identifier: Apache-2.0
"""Licences of simulated guests with vGPUs, from the lab's licence server whose token is in their seed.

Without such a token a simulated guest is licensed for ever, as NVML says without a licence server. A guest boots at
once, so its first check-out ends before its start is answered; a server that does not answer delays the start.
"""

import asyncio
import base64
import re
from collections.abc import Sequence
from contextlib import suppress

from vgpuctl.catalog.licence_editions import EDITIONS_OF_CARDS, allowed_editions
from vgpuctl_lab.licensing.client import Claims, LicenceClient, LicenceSession, read_claims
from vgpuctl_lab.simulated.machine.state import Licence, MachineFolder

_TIMEOUT_S = 2.0
_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,65536}\.[A-Za-z0-9_-]{10,}")
_ENCODED = re.compile(rb"ZXlK[A-Za-z0-9+/]{40,90000}={0,2}")
_FEATURE_TYPE = re.compile(rb"FEATURE_TYPE=['\"]?([24])\b")
_OF_FEATURE_TYPE = {b"2": "vws", b"4": "vcs"}


class GuestLicences:
    """The licence daemons of one host's guests, by UUID."""

    def __init__(self, machine: MachineFolder) -> None:
        self._machine = machine
        self._sessions: dict[str, tuple[LicenceSession, asyncio.Task[None]]] = {}

    async def start(self, vm_uuid: str, seed: bytes) -> None:
        """Check out the licence of a guest that has just booted, and renew it from now on."""
        token, editions = _token(seed), self._editions(vm_uuid, seed)
        claims = None if token is None else read_claims(token)
        if token is None or claims is None or not editions or vm_uuid in self._sessions:
            return
        session = LicenceSession(LicenceClient(token, claims, vm_uuid, _TIMEOUT_S), editions)
        wait_s = await self._step(vm_uuid, session, claims)
        self._sessions[vm_uuid] = (session, asyncio.create_task(self._renew(vm_uuid, session, claims, wait_s)))

    async def end(self, running: set[str], *, is_shutdown: bool) -> None:
        """Note which guests have ended. is_shutdown: they did it in order, so they have returned their licences."""
        for vm_uuid in set(self._sessions) - running:
            session, task = self._sessions.pop(vm_uuid)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if is_shutdown:
                await asyncio.to_thread(session.end)

    def forget(self) -> None:
        """End all daemons, as the end of the host does."""
        for _, task in self._sessions.values():
            task.cancel()
        self._sessions.clear()

    async def _renew(self, vm_uuid: str, session: LicenceSession, claims: Claims, wait_s: float) -> None:
        while True:
            await asyncio.sleep(wait_s)
            wait_s = await self._step(vm_uuid, session, claims)

    async def _step(self, vm_uuid: str, session: LicenceSession, claims: Claims) -> float:
        wait_s = await asyncio.to_thread(session.step)
        with self._machine.change() as state:
            domain = state.domains.get(vm_uuid)
            if domain is not None:
                before = 0.0 if domain.licence is None else domain.licence.expires_at
                expires_at = before if session.held is None else session.held.expires_at
                domain.licence = Licence(expires_at, claims.restricted_after_s, claims.stopped_after_s)
        return wait_s

    def _editions(self, vm_uuid: str, seed: bytes) -> Sequence[str]:
        """The editions that the guest's driver asks for: by its vGPUs, else by FeatureType for a whole card."""
        state = self._machine.state()
        domain = state.domains.get(vm_uuid)
        if domain is None:
            return ()
        allowed = []
        for card in self._machine.shape.cards:
            for vgpu in state.vgpus_of(card):
                if vgpu.uuid in domain.mdevs if vgpu.uuid is not None else vgpu.function in domain.functions:
                    kind = card.type_of(vgpu.type_id)
                    allowed.append(allowed_editions("" if kind is None else kind.full_name.split()[-1]))
        wanted = [one for one in allowed if one]
        if wanted:
            return [one.value for one in wanted[0] if all(one in others for others in wanted)]
        asked = _FEATURE_TYPE.search(seed)
        edition = None if asked is None or not domain.functions else _OF_FEATURE_TYPE[asked[1]]
        return [edition] if edition in EDITIONS_OF_CARDS else ()


def _token(seed: bytes) -> str | None:
    """The client configuration token in a seed, as text or in base64; None without one."""
    found = _TOKEN.search(seed)
    if found is not None:
        return found[0].decode("ascii")
    for encoded in _ENCODED.findall(seed):
        with suppress(ValueError):
            decoded = _TOKEN.search(base64.b64decode(encoded))
            if decoded is not None:
                return decoded[0].decode("ascii")
    return None
