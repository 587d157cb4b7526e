# SPDX-License-Identifier: Apache-2.0
"""The metadata block survives the way into a domain and back."""

from dataclasses import replace

import pytest

from tests.unit.guests.cases import CASES
from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.metadata import parse_metadata
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.facts.domain_facts import DomainState, HostdevFact, domain_fact, domain_state, guest_pci_devices


@pytest.mark.parametrize("name", CASES)
def test_metadata_is_read_back_as_it_was_written(name: str) -> None:
    view = CASES[name]
    assert parse_metadata(render_domain(view)) == view.metadata


def test_a_foreign_domain_has_no_metadata_of_ours() -> None:
    assert parse_metadata("<domain><name>x</name><metadata><a xmlns='urn:b'/></metadata></domain>") is None
    assert parse_metadata("<domain><name>x</name></domain>") is None


def test_an_edited_block_is_an_error_that_names_the_field() -> None:
    xml = render_domain(CASES["mdev"])
    with pytest.raises(GuestError, match=r"metadata of domain acme\.web-1 has no 'tenant'"):
        parse_metadata(xml.replace("tenant='acme'", ""))
    with pytest.raises(GuestError, match="GPU index 'x'"):
        parse_metadata(xml.replace("index='0' lease", "index='x' lease"))


def test_user_data_is_not_repeated_in_the_domain() -> None:
    xml = render_domain(CASES["mdev"])
    assert "secret" not in xml
    metadata = parse_metadata(xml)
    assert metadata is not None
    cloud_init = metadata.request_fields()["cloud_init"]
    assert isinstance(cloud_init, dict)
    assert cloud_init["user_data"].startswith("sha256:")


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        ("{}", ()),
        ('{"labels":[["env","prod"],["app","web"]]}', (("app", "web"), ("env", "prod"))),
        ('{"labels":[["app",""]]}', (("app", ""),)),
    ],
)
def test_labels_are_read_for_adoption(written: str, labels: tuple[tuple[str, str], ...]) -> None:
    assert replace(CASES["mdev"].metadata, request=written).labels() == labels


@pytest.mark.parametrize("written", ['[["a b","c"]]', '[["a"]]', "[1]", '[["a","b","c"]]', '[["app",{}]]'])
def test_labels_that_somebody_edited_are_an_error(written: str) -> None:
    with pytest.raises(GuestError, match=r"the labels of VM web-1 of tenant acme in its metadata cannot be read"):
        replace(CASES["mdev"].metadata, request=f'{{"labels":{written}}}').labels()


def test_what_a_vm_asked_for_is_read_for_adoption() -> None:
    text = '{"gpus":[{"text":"2*A40-8Q,compute>=15%","count":2,"profile":"A40-8Q"},{"text":"passthrough"}]}'
    asked = replace(CASES["mdev"].metadata, request=text).asked_gpus()
    assert [(one.text, one.minimum_compute_percent, one.position) for one in asked] == [
        ("A40-8Q,compute>=15%", 15.0, 0), ("A40-8Q,compute>=15%", 15.0, 1), ("passthrough", None, 2),
    ]  # fmt: skip
    assert replace(CASES["mdev"].metadata, request="{}").asked_gpus() == ()


@pytest.mark.parametrize("written", ["[1]", '["A40-8Q"]', '[{"text":5}]', '[{"text":"a,compute>=x"}]', '[{"a":1}]'])
def test_gpus_that_somebody_edited_are_an_error(written: str) -> None:
    with pytest.raises(GuestError, match=r"the GPUs of VM web-1 of tenant acme in its metadata cannot be read"):
        replace(CASES["mdev"].metadata, request=f'{{"gpus":{written}}}').asked_gpus()


def test_a_domain_is_read_with_its_host_devices() -> None:
    fact = domain_fact(render_domain(CASES["several_kinds"]), DomainState.RUNNING)
    assert fact.name == "acme.web-1"
    assert fact.metadata == CASES["several_kinds"].metadata
    assert fact.hostdevs == (
        HostdevFact("pci", "0001:c1:1f.7", "ua-gpu0", managed=False),
        HostdevFact("pci", "0000:41:00.0", "ua-gpu1", managed=True),
        HostdevFact("pci", "0000:41:00.1", "ua-gpu1-1", managed=True),
        HostdevFact("mdev", "c73f1fa6-489e-4834-9476-d70dabd98c40", "ua-gpu2", managed=False),
    )


def test_states_follow_the_numbers_of_libvirt() -> None:
    assert domain_state(1) is DomainState.RUNNING
    assert domain_state(3) is DomainState.PAUSED
    assert domain_state(5) is DomainState.SHUT_OFF
    assert domain_state(7) is DomainState.SUSPENDED
    assert domain_state(99) is DomainState.NO_STATE
    assert not DomainState.SHUT_OFF.is_active()


@pytest.mark.parametrize("answer", ["", "null", "{}", '{"return": [{}]}', '{"return": [{"devices": [{}]}]}'])
def test_a_broken_answer_of_qemu_is_an_error(answer: str) -> None:
    with pytest.raises(GuestError, match="query-pci cannot be read"):
        guest_pci_devices(answer)
