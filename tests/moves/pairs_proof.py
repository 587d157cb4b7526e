# SPDX-License-Identifier: Apache-2.0
"""What the check says about a move against what real QEMU and real libvirt then do, for many pairs of hosts.

`make test-moves` runs it once, `PAIRS=10` ten times. Where the check says `live`, vgpuctl moves the VM; else libvirt is
asked to do it without vgpuctl. A move goes if the guest runs on with its memory and with the registers of its vGPU.
Limits that are a policy (cordons, quotas, ...) and rules about cards that no emulated card has are not tried.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from xml.etree import ElementTree

import libvirt
import pytest

from tests.moves.fleet import DOMAIN, GPUS, LIVE, Fleet, say
from tests.moves.hosts import Device, MoveHost, Way, Words, make_device, move_domain

pytestmark = pytest.mark.timeout(7200)
PAIRS = int(os.environ.get("PAIRS") or 1)
OTHER_TYPES = {Way.PROFILE: "A40-4Q", Way.MDEV_VF: "A40-4Q", Way.MDEV_PF: "T4-2Q"}
FAILED = 7
"""Exit code of a move that began and failed; a refused one has others."""
_FREE_VF = 7
_TAKEN_VF = 2
_OTHER_DOMAIN = f"""<domain type='qemu'><name>{DOMAIN}</name><memory unit='MiB'>16</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"""

World = Callable[[Way, MoveHost, MoveHost], AbstractContextManager[str | None]]
"""How two hosts are for one attempt: way, source and target; yields the vGPU type for an attempt without vgpuctl."""


@contextmanager
def as_they_are(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    yield


@contextmanager
def large_state(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    source.fault(way, "move-state", 16)
    yield
    source.fault(way, "move-state", 0)


@contextmanager
def state_that_changes(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    source.fault(way, "move-state", 8)
    source.fault(way, "move-dirty", 1)
    yield
    source.end_faults()


@contextmanager
def other_vgpu_there(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    device = make_device(target, way, GPUS[way], _TAKEN_VF)
    yield
    device.delete()


@contextmanager
def libvirtd_begins_again(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    for host in (source, target):
        host.kill_libvirtd()
        host.start_libvirtd()
    yield


@contextmanager
def unmovable_card_there(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    target.fault(way, "move-unsupported", 1)
    yield
    target.fault(way, "move-unsupported", 0)


@contextmanager
def same_name_there(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    domain = target.connection().defineXML(_OTHER_DOMAIN)
    yield
    domain.undefine()


@contextmanager
def other_type_alone_there(way: Way, source: MoveHost, target: MoveHost) -> Iterator[str]:
    # Vgpus of one card have one size.
    device = make_device(target, way, OTHER_TYPES[way], _TAKEN_VF)
    yield OTHER_TYPES[way]
    device.delete()


@contextmanager
def libvirtd_away_there(way: Way, source: MoveHost, target: MoveHost) -> Iterator[None]:
    target.kill_libvirtd()
    yield
    target.start_libvirtd()


WORLDS: tuple[World, ...] = (
    as_they_are, large_state, state_that_changes, other_vgpu_there, libvirtd_begins_again,
    unmovable_card_there, same_name_there, other_type_alone_there, libvirtd_away_there,
)  # fmt: skip


@pytest.mark.parametrize("way", GPUS)
def test_what_the_check_says_is_what_happens(fleet: Fleet, way: Way) -> None:
    dice = random.Random(f"{way} {PAIRS}")
    found: Counter[tuple[bool, bool]] = Counter()
    wrong: list[str] = []
    for number in range(PAIRS):
        for world in dice.sample(WORLDS, len(WORLDS)):
            if not fleet.operator.json("list-vms"):
                fleet.create(way)
            is_live, told, goes = attempt(fleet, way, world)
            found[is_live, goes] += 1
            answer = "live" if is_live else f"no ({told.strip()[-200:]})"
            say(f"{way} {number + 1} {world.__name__}: {answer}, {'went' if goes else 'did not go'}")
            if is_live is not goes:
                wrong.append(f"{world.__name__}: {told}")
    false_live, false_no = found[True, False], found[False, True]
    say(f"{way}: {found.total()} pairs, {found[True, True]} live, {false_live} false live, {false_no} false no")
    assert false_live == 0, wrong
    assert false_no <= 0.02 * found.total(), wrong
    fleet.has_nothing_left()


def attempt(fleet: Fleet, way: Way, world: World) -> tuple[bool, str, bool]:
    """Try: whether the check that each move begins with says `live`, what was said, and whether the VM goes."""
    source, target = fleet.ends()
    before = fleet.says(source)
    with world(way, source, target) as other_type:
        done = fleet.operator.run(*LIVE, "--to", target.name)
        if done.code not in (0, FAILED):
            return False, done.err, goes_without_us(fleet, way, before, other_type or GPUS[way])
        return True, done.err, done.code == 0 and is_whole(fleet, target, before)


def goes_without_us(fleet: Fleet, way: Way, before: Words, type_name: str) -> bool:
    """Let libvirt move the VM to a vGPU of this type that nobody else made: whether it goes."""
    source, target = fleet.ends()
    device = make_device(target, way, type_name, _FREE_VF)
    try:
        domain = source.domain(DOMAIN)
        move_domain(domain, target, with_device(domain, device))
    except libvirt.libvirtError as error:
        say(f"libvirt: {error.get_error_message()}")
        device.delete()
        return False
    went = is_whole(fleet, target, before)
    target.domain(DOMAIN).destroy()
    target.domain(DOMAIN).undefine()
    device.delete()
    fleet.operator.run("repair")
    fleet.delete()
    return went


def is_whole(fleet: Fleet, target: MoveHost, before: Words) -> bool:
    """True if the guest runs on there with its memory and the registers of its vGPU."""
    after = fleet.says(target, after=before.count)
    return (after.memory, [mark for mark, _ in after.gpus]) == (before.memory, [mark for mark, _ in before.gpus])


def with_device(domain: libvirt.virDomain, device: Device) -> str:
    """The domain's definition for another host, with this device in place of its own."""
    root = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE))
    (address,) = root.findall("devices/hostdev/source/address")
    there = ElementTree.fromstring(device.source_xml)
    address.attrib.clear()
    address.attrib.update(there.attrib)
    return ElementTree.tostring(root, encoding="unicode")
