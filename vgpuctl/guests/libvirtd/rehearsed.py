# SPDX-License-Identifier: Apache-2.0
"""libvirt in a dry run: every object of a connection in a shell that passes on what reads and notes what changes.

A method that is in neither table counts as a change: what is added later cannot change a host by mistake.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vgpuctl.model.rehearsal import Rehearsal

_NAMES_OF_READS = """
    lookupByUUIDString lookupByName listAllDomains listAllNetworks listAllStoragePools listAllVolumes listAllDevices
    getAllDomainStats networkLookupByName nwfilterLookupByName storagePoolLookupByName storageVolLookupByName
    getHostname getInfo getType getLibVersion getCapabilities getDomainCapabilities newStream isAlive XMLDesc name
    blockIoTune interfaceParameters schedulerParametersFlags
    path key state info jobStats isActive autostart UUIDString vcpuPinInfo blockJobInfo download refresh screenshot
    managedSaveGetXMLDesc snapshotNum jobInfo compareHypervisorCPU startDirtyRateCalc
    domainEventRegisterAny domainEventDeregisterAny registerCloseCallback unregisterCloseCallback
    """
READS = frozenset(_NAMES_OF_READS.split())
CHANGES = {
    "createWithFlags": "start",
    "create": "start",
    "shutdown": "shut down",
    "destroyFlags": "force off",
    "destroy": "stop",
    "resume": "resume",
    "pMWakeup": "wake",
    "reset": "reset",
    "migrate3": "move",
    "migrateSetMaxDowntime": "limit the downtime of",
    "abortJob": "end the move of",
    "managedSave": "suspend",
    "managedSaveDefineXML": "change the saved state of",
    "managedSaveRemove": "delete the saved state of",
    "undefineFlags": "undefine",
    "undefine": "undefine",
    "rename": "rename",
    "attachDeviceFlags": "attach a device to",
    "detachDeviceFlags": "detach a device from",
    "detachDeviceAlias": "detach a device from",
    "updateDeviceFlags": "change a device of",
    "blockResize": "resize a disk of",
    "setBlockIoTune": "limit a disk of",
    "setInterfaceParameters": "limit an interface of",
    "setSchedulerParametersFlags": "limit the vCPUs of",
    "blockCommit": "merge a disk of",
    "snapshotCreateXML": "take a snapshot of the disks of",
    "fsThaw": "thaw the file systems of",
    "createXML": "create a volume in",
    "delete": "delete",
    "resize": "resize",
    "upload": "write to",
    "blockJobAbort": "end a job on a disk of",
    "build": "build",
    "networkDefineXML": "define a network on",
    "storagePoolDefineXML": "define a pool on",
    "openConsole": "open the console of",
}
UNNEEDED = {
    "defineXMLFlags": "define the domain on",
    "setAutostart": "set the autostart of",
    "setMetadata": "write into the metadata of",
    "pinVcpu": "pin the vCPUs of",
    "pinVcpuFlags": "pin the vCPUs of",
    "pinEmulator": "pin the emulator of",
    "update": "update",
    "agentSetResponseTimeout": "set how long to wait for the agent of",
    "nwfilterDefineXML": "define a packet filter on",
}
"""Changes whose result no command reads back."""
_NOUNS = {"virDomain": "domain", "virStoragePool": "pool", "virStorageVol": "volume", "virNetwork": "network"}


class RehearsedObject:
    """An object of libvirt-python that is only read."""

    def __init__(self, inner: Any, host: str, rehearsal: Rehearsal) -> None:
        self._inner = inner
        self._host = host
        self._rehearsal = rehearsal

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in READS:
            return partial(self._read, getattr(self._inner, name))
        if name in UNNEEDED:
            return partial(self._note, self._rehearsal.would, UNNEEDED[name])
        if name in CHANGES:
            return partial(self._note, self._rehearsal.end, CHANGES[name])
        return partial(self._note, self._rehearsal.end, f"call {name} of")

    def _read(self, method: Callable[..., Any], *given: Any) -> Any:
        found = method(*given)
        return [self._shell(one) for one in found] if isinstance(found, list) else self._shell(found)

    def _shell(self, found: Any) -> Any:
        is_object = type(found).__name__ in (*_NOUNS, "virNWFilter")
        return RehearsedObject(found, self._host, self._rehearsal) if is_object else found

    def _note(self, note: Callable[[str, str], None], verb: str, *_given: object) -> None:
        noun = _NOUNS.get(type(self._inner).__name__)
        note(self._host, f"{verb} {noun} {self._inner.name()}" if noun else f"{verb} the host")
