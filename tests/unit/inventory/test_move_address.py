# SPDX-License-Identifier: Apache-2.0
"""No two hosts may have one address for moves: a VM would go to the wrong one."""

from pathlib import Path

import pytest
import yaml

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.load import Inventory


def read(folder: Path, **hosts: dict[str, object]) -> Inventory:
    written = {
        name: {"ansible_host": variables.pop("login", name), "vgpu_moves": variables}
        for name, variables in hosts.items()
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"g": {"hosts": written, "vars": {}}}))
    return load_inventory([folder / "hosts.yml"])


TRUSTED: dict[str, object] = {"network": "trusted"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"address": "10.0.8.1"}, {"address": "10.0.8.1"}),
        ({"address": "fd00::7"}, {"address": "FD00:0::0007"}),
        ({"address": "move-1.example"}, {"address": "Move-1.example."}),
        ({"address": "10.0.8.1"}, {"address": "0::ffff:10.0.8.1"}),
        ({"address": "10.0.8.1"}, {"address": "10.2049"}),
        ({"address": "10.0.8.1"}, {"login": "10.0.8.1"}),
        ({"login": "10.0.8.1"}, {"address": "10.0.8.1"}),
    ],
)
def test_an_address_of_two_hosts_is_refused_with_both(
    tmp_path: Path, one: dict[str, object], other: dict[str, object]
) -> None:
    inventory = read(tmp_path, gpu1=TRUSTED | one, gpu2=TRUSTED | other, gpu3=TRUSTED | {"address": "10.0.8.3"})
    for host, second in (("gpu1", "gpu2"), ("gpu2", "gpu1")):
        with pytest.raises(InventoryError, match=f"hosts {host} and {second} have the same address for moves") as said:
            inventory.verify(host)
        assert said.value.message.startswith(f"{tmp_path}/hosts.yml:") and "host_vars" in str(said.value.hint)
        with pytest.raises(InventoryError):
            inventory.require_readable(["gpu3", host])
    inventory.verify("gpu3")
    assert inventory.move_address("gpu3") == "10.0.8.3"


def test_hosts_that_declare_none_may_share_their_login_and_others_do_not_count(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        gpu1=TRUSTED | {"login": "127.0.0.1"},
        gpu2=TRUSTED | {"login": "127.0.0.1"},
        gpu3=TRUSTED | {"address": "10.0.8.3"},
        without={"address": "10.0.8.3"},
        broken=TRUSTED | {"address": "10.0.8.3", "speed": 7},
    )
    inventory.require_readable(["gpu1", "gpu2", "gpu3", "without"])
    assert inventory.move_address("gpu2") == "127.0.0.1"


def test_an_address_that_is_the_name_of_another_host_is_refused(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        gpu1=TRUSTED | {"address": "GPU2."},
        gpu2=TRUSTED | {"address": "10.0.8.2"},
        gpu3=TRUSTED | {"address": "gpu3"},
    )
    with pytest.raises(InventoryError, match=r"hosts gpu1 and gpu2 have the same address for moves, GPU2\."):
        inventory.verify("gpu1")
    inventory.require_readable(["gpu2", "gpu3"])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "0",
        "0.0.0.0",
        "0::1",
        "0:0:0:0:0:ffff:7f00:1",
        "224.0.0.7",
        "Localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback.",
        "localhost6.localdomain6",
        "gpu1.localhost",
    ],
)
def test_an_address_that_leads_to_no_other_host_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InventoryError, match=f"by {address} no host reaches another one"):
        read(tmp_path, gpu1=TRUSTED | {"address": address}).verify("gpu1")
