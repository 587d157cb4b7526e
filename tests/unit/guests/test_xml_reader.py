# SPDX-License-Identifier: Apache-2.0
"""libvirt's dump of a domain is read within bounds; anything else is an error."""

import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.metadata import NAMESPACE, parse_metadata
from vgpuctl.guests.facts.domain_facts import DomainState, domain_fact, guest_pci_devices
from vgpuctl.guests.facts.domain_shape import domain_shape
from vgpuctl.guests.libvirtd.networks import read_bridge, read_entries
from vgpuctl.guests.xml_reader import MOST_CHARACTERS

LAUGHS = "<!DOCTYPE d [<!ENTITY a 'ha'>]><domain>&a;</domain>"
BAD = ["", "<domain>", "<domain>\x00</domain>", "<domain>\ud800</domain>", LAUGHS, " " * (MOST_CHARACTERS + 1), "{}"]


@pytest.mark.parametrize("xml", BAD)
def test_what_is_no_xml_of_libvirt_is_refused(xml: str) -> None:
    for read in (domain_shape, parse_metadata, read_entries, read_bridge):
        with pytest.raises(GuestError, match="XML"):
            read(xml)
    with pytest.raises(GuestError, match="XML"):
        domain_fact(xml, DomainState.RUNNING)


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "٣", "1.5", ""])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(GuestError, match="vcpus"):
        domain_shape(f"<domain><vcpu>{number}</vcpu><memory>1024</memory></domain>")
    with pytest.raises(GuestError, match="index"):
        parse_metadata(
            f"<domain><metadata><v:vm xmlns:v='{NAMESPACE}' tenant='a' name='b' host='c'>"
            f"<v:gpu index='{number}'/></v:vm></metadata></domain>"
        )


def test_an_address_that_is_none_is_refused() -> None:
    source = "<source><address bus='x'/></source>"
    xml = f"<domain><devices><hostdev mode='subsystem' type='pci'>{source}</hostdev></devices></domain>"
    with pytest.raises(GuestError, match="PCI address"):
        domain_fact(xml, DomainState.RUNNING)


def test_a_request_that_is_no_json_is_refused() -> None:
    for text in ("{", "[" * 3000, '{"a": NaN}'):
        found = parse_metadata(
            f"<domain><metadata><v:vm xmlns:v='{NAMESPACE}' tenant='a' name='b' host='c'>"
            f"<v:request>{text}</v:request></v:vm></metadata></domain>"
        )
        assert found is not None
        with pytest.raises(GuestError, match="metadata of VM b"):
            found.request_fields()


@pytest.mark.parametrize(
    "answer", ["", "[]", "[" * 5000, '{"return": [{"devices": [1]}]}', '{"return": [{"devices": 1}]}']
)
def test_a_wrong_answer_of_qemu_is_refused(answer: str) -> None:
    with pytest.raises(GuestError, match="query-pci"):
        guest_pci_devices(answer)
