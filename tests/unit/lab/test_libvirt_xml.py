# SPDX-License-Identifier: Apache-2.0
"""Changes of simulated hosts to a domain's XML, against the parser of the libvirt that is installed."""

import re
from collections.abc import Iterator

import libvirt
import pytest

from vgpuctl_lab.simulated.libvirt_xml import with_chosen_firmware

NVRAM = "<nvram>/var/lib/libvirt/qemu/nvram/one.fd</nvram>"
CASES = {
    "plain": ("", "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>"),
    "without secure boot": (
        "<firmware><feature enabled='no' name='secure-boot'/></firmware>",
        "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>",
    ),
    "secure boot": (
        "<firmware><feature enabled='yes' name='secure-boot'/></firmware><loader secure='yes'/>",
        "<loader readonly='yes' type='pflash' secure='yes'>/usr/share/OVMF/OVMF_CODE_4M.ms.fd</loader>",
    ),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[libvirt.virConnect]:
    opened = libvirt.open("test:///default")
    yield opened
    opened.close()


@pytest.mark.parametrize("nvram", ["", NVRAM], ids=["no nvram", "nvram"])
@pytest.mark.parametrize("case", CASES)
def test_a_migratable_uefi_domain_starts_again_as_uefi(connection: libvirt.virConnect, case: str, nvram: str) -> None:
    said, loader = CASES[case]
    if libvirt.getVersion() < 11_000_000:
        said = said.replace("<loader secure='yes'/>", "")  # older parsers refuse it beside firmware='efi'
    xml = (
        "<domain type='test'><name>one</name><memory>65536</memory>"
        f"<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>{said}{nvram}</os></domain>"
    )
    running = connection.createXML(xml)
    written = running.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    migratable = running.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_MIGRATABLE)
    running.destroy()
    chosen = with_chosen_firmware(migratable, written)
    if "firmware='efi'" in migratable:  # libvirt 9 says it again
        assert chosen == migratable
    else:
        assert re.findall("<loader.*", chosen) == [loader.replace("'", '"')]
    again = connection.createXML(chosen)
    assert "efi" in again.XMLDesc() or "pflash" in again.XMLDesc()
    again.destroy()


@pytest.mark.parametrize("loader", ["", "<loader type='pflash'>/own.fd</loader>"], ids=["bios", "own loader"])
def test_a_domain_whose_firmware_libvirt_does_not_choose_stays_as_it_is(loader: str) -> None:
    xml = f"<domain type='kvm'><os><type>hvm</type>{loader}</os></domain>"
    assert with_chosen_firmware(xml, xml) == xml
