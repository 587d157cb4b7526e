# SPDX-License-Identifier: Apache-2.0
"""The XML of a running domain for another host: the guest's machine stays, what the host gives is the other's."""

from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.unit.guests.all_cases import CASES
from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.metadata import parse_metadata
from vgpuctl.guests.domain.moved import copied_disks, moved_xml
from vgpuctl.guests.domain.render import render_domain

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
OTHER_UUID = "0f0e0d0c-0000-4000-8000-00000000000f"
WITH_GPUS = [name for name in CASES if "<hostdev" in render_domain(CASES[name])]
WITH_DISKS = [name for name in CASES if "device='disk'" in render_domain(CASES[name])]


def _tree(xml: str) -> Any:
    return etree.fromstring(xml.encode())


def _same(xml: str) -> bytes:
    parser = etree.XMLParser(remove_blank_text=True)
    return etree.tostring(etree.fromstring(xml.encode(), parser), method="c14n2")


def _on_another_host(xml: str) -> str:
    """The definition as another host would have it: other devices, paths, CPUs, cells and leases."""
    tree = _tree(xml)
    for address in tree.iterfind("devices/hostdev/source/address"):
        address.set("uuid" if address.get("uuid") else "bus", OTHER_UUID if address.get("uuid") else "0xc1")
    for source in tree.iterfind("devices/disk//source"):
        if source.get("file"):
            source.set("file", "/srv/other" + source.get("file"))
    for pin in tree.iterfind("cputune/vcpupin"):
        pin.set("cpuset", "30-31")
    for memory in tree.iterfind("numatune/memory"):
        memory.set("nodeset", "7")
    block = tree.find("metadata")[0]
    block.set("host", "gpu9")
    for gpu in block.iterfind("{*}gpu"):
        gpu.set("lease", "another-lease")
    return etree.tostring(tree, encoding="unicode")


# Two interfaces of that case have one MAC address, by which those of a real domain are told apart.
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"several_interfaces"}))
def test_all_that_the_host_gives_is_the_other_hosts(name: str) -> None:
    running = render_domain(CASES[name])
    definition = _on_another_host(running)
    assert _same(moved_xml(running, definition)) == _same(definition)


@pytest.mark.parametrize("name", WITH_GPUS)
def test_what_the_guest_sees_stays_as_it_runs(name: str) -> None:
    running = _tree(render_domain(CASES[name]))
    running.find("vcpu").text = "64"
    running.find("devices").append(
        etree.fromstring("<interface type='network'><mac address='52:54:00:0:0:1'/></interface>")
    )
    running.find("metadata").append(etree.fromstring("<p:preemption xmlns:p='urn:p' at='1'/>"))
    moved = moved_xml(etree.tostring(running, encoding="unicode"), _on_another_host(render_domain(CASES[name])))
    tree = _tree(moved)
    assert tree.findtext("vcpu") == "64"
    assert tree.find("devices/interface/mac[@address='52:54:00:0:0:1']") is not None
    assert tree.find("metadata/{urn:p}preemption") is not None
    metadata = parse_metadata(moved)
    assert metadata is not None
    assert (metadata.host, {gpu.lease for gpu in metadata.gpus}) == ("gpu9", {"another-lease"})
    etree.RelaxNG(etree.parse(str(SCHEMA))).assertValid(
        etree.fromstring(moved_xml(render_domain(CASES[name]), _on_another_host(render_domain(CASES[name]))).encode())
    )


def test_a_gpu_that_the_other_host_does_not_have_is_refused() -> None:
    running = render_domain(CASES["mdev"])
    definition = _tree(running)
    for device in definition.findall("devices/hostdev"):
        definition.find("devices").remove(device)
    with pytest.raises(GuestError, match="ua-gpu0, which the other host does not have"):
        moved_xml(running, etree.tostring(definition, encoding="unicode"))


def test_a_domain_without_our_metadata_is_refused() -> None:
    running = _tree(render_domain(CASES["mdev"]))
    running.remove(running.find("metadata"))
    with pytest.raises(GuestError, match="without the metadata of its VM"):
        moved_xml(etree.tostring(running, encoding="unicode"), render_domain(CASES["mdev"]))


@pytest.mark.parametrize("name", WITH_DISKS)
def test_the_disks_to_copy_are_named_as_the_guest_knows_them(name: str) -> None:
    running = render_domain(CASES[name])
    disks = _tree(running).findall("devices/disk[@device='disk']")
    paths = frozenset(disk.find("source").get("file") for disk in disks)
    assert copied_disks(running, paths) == tuple(disk.find("target").get("dev") for disk in disks)
    assert copied_disks(running, frozenset()) == ()
