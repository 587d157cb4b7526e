# SPDX-License-Identifier: Apache-2.0
"""The cloud-init seed: its files, its image, and what it refuses."""

import io
import os
import time
from dataclasses import replace
from typing import Any

import pytest
import yaml
from pycdlib import PyCdlib

from tests.unit.guests.cases import REQUEST, VM_UUID, vm
from vgpuctl.guests.seed.image import seed_files, seed_image
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.interfaces import host_mac
from vgpuctl.model.network import Attachment, Backend, Network, NetworkRequest, NetworkState, Port, mac_address
from vgpuctl.model.nic import NicRequest
from vgpuctl.model.numa import GuestNuma, NumaCell
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit

TWO_CELLS = GuestNuma((NumaCell(0, 4, 8192), NumaCell(1, 4, 8192)), has_vnuma=True, gpu_cells=(0, 1))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv me@here: 'x' \"y\" #z"


def test_keys_reach_the_guest_beside_a_document_of_the_user() -> None:
    script = "#!/bin/sh\necho hello\n"
    files = seed_files(CloudInit(ssh_authorized_keys=(KEY,), user_data=SecretText.of(script)), vm())
    assert files["user-data"] == script
    assert yaml.safe_load(files["meta-data"]) == {
        "instance-id": VM_UUID,
        "local-hostname": "web-1",
        "public-keys": [KEY],
    }


def test_without_a_document_user_data_carries_hostname_and_keys() -> None:
    files = seed_files(CloudInit(ssh_authorized_keys=(KEY, KEY), hostname="<db>&'\"1"), vm())
    assert files["user-data"].startswith("#cloud-config\n")
    document = yaml.safe_load(files["user-data"])
    assert document["hostname"] == "<db>&'\"1"
    assert document["ssh_authorized_keys"] == [KEY, KEY]


def test_the_interface_is_named_by_its_mac_address() -> None:
    with_network = vm(replace(REQUEST, network="default"))
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), with_network)["network-config"])
    # Without `set-name`, cloud-init before 22.2 takes the key `primary` for the device's name.
    expected = {"match": {"macaddress": mac_address(VM_UUID)}, "set-name": "enp2s0", "dhcp4": True}
    assert document["ethernets"]["primary"] == expected
    assert "network-config" not in seed_files(CloudInit(hostname="a"), vm())
    own = "version: 2\n"
    assert seed_files(CloudInit(network_config=SecretText.of(own)), with_network)["network-config"] == own


@pytest.mark.parametrize("isolated", [False, True])
def test_a_port_in_a_tenants_network_gets_the_address_of_the_store(*, isolated: bool) -> None:
    request = NetworkRequest("front", "acme", "10.0.0.0/24", dns=("192.0.2.53",), isolated=isolated, host="gpu1")
    network = Network("8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f00", request, NetworkState.CREATED)
    port = Port("8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f01", network.id, VM_UUID, 0, mac_address("a"), "10.0.0.7")
    with_network = vm(replace(REQUEST, network="front"))
    files = seed_files(CloudInit(hostname="a"), with_network, [Attachment(network, port)])
    expected = {
        "match": {"macaddress": mac_address("a")},
        "set-name": "enp2s0",
        "dhcp4": False,
        "addresses": ["10.0.0.7/24"],
        "nameservers": {"addresses": ["192.0.2.53"]},
    }
    if not isolated:
        expected["routes"] = [{"to": "0.0.0.0/0", "via": "10.0.0.1"}]
    assert yaml.safe_load(files["network-config"])["ethernets"]["primary"] == expected


def _dual(number: int, cidr: str | None, cidr6: str, *addresses: str) -> Attachment:
    """A place in an OVN network with IPv6."""
    dns = ("192.0.2.53", "fd00:53::1") if cidr else ("fd00:53::1",)
    request = NetworkRequest(f"net{number}", "acme", cidr, dns=dns, backend=Backend.OVN, cidr6=cidr6)
    network = Network(f"8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f0{number}", request, NetworkState.CREATED)
    mac = mac_address(str(number))
    port = Port(f"port-{number}", network.id, VM_UUID, number, mac, addresses[0], addresses[-1])
    return Attachment(network, port, 1442)


def test_a_port_with_both_versions_has_both_in_the_document_and_one_default_route_of_each() -> None:
    several = vm(replace(REQUEST, network="net0", nics=(NicRequest("net1"),)))
    places = [
        _dual(0, None, "fd00:1::/64", "fd00:1::7"),
        _dual(1, "10.0.1.0/24", "fd00:2::/64", "10.0.1.7", "fd00:2::7"),
    ]
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), several, places)["network-config"])
    first, second = (document["ethernets"][name] for name in ("primary", "nic1"))
    assert first["addresses"] == ["fd00:1::7/64"]
    assert first["routes"] == [{"to": "::/0", "via": "fd00:1::1"}]
    assert first["nameservers"] == {"addresses": ["fd00:53::1"]}
    assert second["addresses"] == ["10.0.1.7/24", "fd00:2::7/64"]
    assert second["routes"] == [{"to": "0.0.0.0/0", "via": "10.0.1.1"}], "IPv6 leaves by the first"
    assert second["nameservers"] == {"addresses": ["192.0.2.53", "fd00:53::1"]}
    for one in (first, second):
        assert (one["dhcp4"], one["dhcp6"], one["accept-ra"], one["mtu"]) == (False, False, False, 1442)


def test_windows_gets_a_subnet_of_each_version_with_its_own_resolvers() -> None:
    desktop = vm(replace(REQUEST, os="win11", network="net0"))
    places = [_dual(0, "10.0.0.0/24", "fd00:1::/64", "10.0.0.7", "fd00:1::7")]
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), desktop, places)["network-config"])
    four = {"type": "static", "address": "10.0.0.7/24", "gateway": "10.0.0.1", "dns_nameservers": ["192.0.2.53"]}
    six = {"type": "static6", "address": "fd00:1::7/64", "gateway": "fd00:1::1", "dns_nameservers": ["fd00:53::1"]}
    assert document["config"][0]["subnets"] == [four, six]


def _two_ports() -> list[Attachment]:
    found = []
    for number, dns in enumerate(((), ("192.0.2.53",))):
        request = NetworkRequest(f"net{number}", "acme", f"10.0.{number}.0/24", dns=dns, backend=Backend.OVN)
        network = Network(f"8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f0{number}", request, NetworkState.CREATED)
        port = Port(f"port-{number}", network.id, VM_UUID, number, mac_address(str(number)), f"10.0.{number}.7")
        search = (f"net{number}.acme.internal", "acme.internal")
        found.append(Attachment(network, port, 1442, has_names=True, search=search))
    return found


def test_each_interface_is_in_the_document_and_one_has_the_default_route() -> None:
    nics = (NicRequest("net1"), NicRequest("lan"))
    several = vm(replace(REQUEST, network="net0", nics=nics))
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), several, _two_ports())["network-config"])
    first, second, third = (document["ethernets"][name] for name in ("primary", "nic1", "nic2"))
    assert [one["set-name"] for one in (first, second, third)] == ["enp2s0", "enp5s0", "enp6s0"]
    assert first["routes"] == [{"to": "0.0.0.0/0", "via": "10.0.0.1"}]
    assert "routes" not in second and second["addresses"] == ["10.0.1.7/24"]
    assert first["nameservers"] == {"addresses": ["10.0.0.1"], "search": ["net0.acme.internal", "acme.internal"]}
    assert second["nameservers"] == {"addresses": ["192.0.2.53"], "search": ["net1.acme.internal", "acme.internal"]}
    nameless = [replace(one, has_names=False, search=()) for one in _two_ports()]
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), several, nameless)["network-config"])
    assert "nameservers" not in document["ethernets"]["primary"]
    assert third["match"] == {"macaddress": host_mac(VM_UUID, 2)}
    assert (third["dhcp4"], third["dhcp4-overrides"]) == (True, {"route-metric": 300})


@pytest.mark.parametrize(
    ("request_of", "numa", "names"),
    [
        ({}, None, ["enp2s0", "enp5s0"]),
        ({"gpus": (parse_gpu_request("2*A40-8Q"),)}, None, ["enp2s0", "enp7s0"]),
        ({"os": "debian-12", "cloud_init": CloudInit(hostname="a")}, None, ["enp2s0", "enp6s0"]),
        ({"gpus": (parse_gpu_request("2*A40-8Q"),)}, TWO_CELLS, ["enp2s0", "enp5s0"]),
    ],
    ids=["plain", "behind the GPUs", "behind the SCSI controller", "GPUs behind expander buses"],
)
def test_an_interface_keeps_the_name_that_it_has_by_its_place(
    request_of: dict[str, Any], numa: GuestNuma | None, names: list[str]
) -> None:
    """As SeaBIOS 1.16 and OVMF 2022.11 number the buses of such ports, read with QEMU's `info pci`."""
    several = replace(vm(replace(REQUEST, network="net0", nics=(NicRequest("net1"),), **request_of)), numa=numa)
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), several, _two_ports())["network-config"])
    assert [one["set-name"] for one in document["ethernets"].values()] == names


def test_windows_gets_version_1_which_cloudbase_init_reads() -> None:
    desktop = vm(replace(REQUEST, os="win11", network="net0", nics=(NicRequest("net1"), NicRequest("lan"))))
    document = yaml.safe_load(seed_files(CloudInit(hostname="a"), desktop, _two_ports())["network-config"])
    assert document["version"] == 1
    first, second, third = document["config"]
    assert {one["type"] for one in document["config"]} == {"physical"}
    own = {"type": "static", "address": "10.0.0.7/24", "gateway": "10.0.0.1", "dns_nameservers": ["10.0.0.1"]}
    assert first["subnets"] == [own]
    assert (first["mac_address"], first["mtu"]) == (mac_address("0"), 1442)
    assert second["subnets"] == [{"type": "static", "address": "10.0.1.7/24", "dns_nameservers": ["192.0.2.53"]}]
    assert third["subnets"] == [{"type": "dhcp"}]


def test_the_image_is_labelled_cidata_and_holds_the_files_under_all_names() -> None:
    cloud_init = CloudInit(
        user_data=SecretText.of("#cloud-config\n# é\n"), network_config=SecretText.of("version: 2\n")
    )
    iso = PyCdlib()
    iso.open_fp(io.BytesIO(seed_image(cloud_init, vm())))
    assert iso.pvd.volume_identifier.rstrip() == b"cidata"
    for name, text in seed_files(cloud_init, vm()).items():
        for path in ({"rr_path": f"/{name}"}, {"joliet_path": f"/{name}"}):
            content = io.BytesIO()
            iso.get_file_from_iso_fp(content, **path)
            assert content.getvalue() == text.encode()
    iso.close()


def test_the_image_is_the_same_at_another_time_and_in_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud_init = CloudInit(hostname="a")
    first = seed_image(cloud_init, vm())
    real_time = time.time
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: real_time() + 1_000_000)
    try:
        assert seed_image(cloud_init, vm()) == first
    finally:
        os.environ.pop("TZ", None)
        time.tzset()


def test_scripts_may_be_indented_with_tabs() -> None:
    script = "#!/bin/sh\nif true; then\n\techo\nfi\n"
    assert seed_files(CloudInit(user_data=SecretText.of(script)), vm())["user-data"] == script


def test_every_character_reaches_the_guest_as_it_is() -> None:
    key = f"{KEY.partition(' me@')[0]} Zürich 🖥\u2028\x85\ufeff\U0001f600"
    files = seed_files(CloudInit(ssh_authorized_keys=(key,)), vm())
    for name in ("meta-data", "user-data"):
        document = yaml.safe_load(files[name])
        keys = document["public-keys" if name == "meta-data" else "ssh_authorized_keys"]
        assert keys == [key]
    assert "\\ud83d" not in "".join(files.values())
