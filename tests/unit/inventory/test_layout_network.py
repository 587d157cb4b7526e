# SPDX-License-Identifier: Apache-2.0
"""The key `network` of a host's layout."""

import textwrap
from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.model.layout import Encapsulation, HostLayout, NetworkLayout
from vgpuctl.planner.layout.fleet_values import values_of


def _read(folder: Path, text: str) -> NetworkLayout | None:
    return _layout(folder, f"version: 1\nnetwork: {text}").network


def _layout(folder: Path, text: str) -> HostLayout:
    (folder / "hosts.yml").write_text("g: {hosts: {h1: }}\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    (folder / "host_vars" / "h1.yml").write_text("vgpu:\n" + textwrap.indent(text, "  ") + "\n")
    layout = load_inventory([folder / "hosts.yml"]).layout("h1")
    assert layout is not None
    return layout


def test_a_chassis_is_called_as_the_inventory_calls_the_host(tmp_path: Path) -> None:
    found = _read(tmp_path, "{southbound: 'ssl:192.0.2.1:6642', tunnels: 10.83.0.0/24}")
    assert found == NetworkLayout(("ssl:192.0.2.1:6642",), "10.83.0.0/24", "h1")
    assert (found.uses_tls, found.guest_mtu) == (True, 1442)


def test_everything_can_be_said(tmp_path: Path) -> None:
    text = "{southbound: ['ssl:a.example:6642', 'ssl:[2001:db8::1]:6642'], tunnels: 10.0.0.7, chassis: rack1-gpu1, "
    found = _read(tmp_path, text + "encapsulation: vxlan, mtu: 9000}")
    remotes = ("ssl:a.example:6642", "ssl:[2001:db8::1]:6642")
    assert found == NetworkLayout(remotes, "10.0.0.7/32", "rack1-gpu1", Encapsulation.VXLAN, 9000)
    assert found.guest_mtu == 8950


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{tunnels: 10.0.0.0/24}", "has no 'southbound'"),
        ("{southbound: [], tunnels: 10.0.0.0/24}", "southbound of host 'h1' is an empty list"),
        ("{southbound: 'tcp:192.0.2.1:6642', tunnels: 10.0.0.0/24}", "plain TCP on a routable address"),
        ("{southbound: 'ssl:192.0.2.1', tunnels: 10.0.0.0/24}", "without address and port"),
        ("{southbound: 'unix:relative', tunnels: 10.0.0.0/24}", "not the place of a database"),
        ("{southbound: 'unix:/run/ovn/x', tunnels: 10.0.0.1/24}", "has host bits set"),
        ("{southbound: 'unix:/run/ovn/x', tunnels: 10.0.0.0/24, mtu: 500}", "mtu of host 'h1' is 500"),
        ("{southbound: 'unix:/run/ovn/x', tunnels: 10.0.0.0/24, encapsulation: gre}", "is 'gre'"),
        ("{southbound: 'unix:/run/ovn/x', tunnels: 10.0.0.0/24, chassis: a b}", "'a b' as the host's name in OVN"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        _read(tmp_path, text)
    assert refused.value.message.startswith(f"{tmp_path}/host_vars/h1.yml:3: vgpu.network")
    assert words in refused.value.message


def test_a_value_that_another_host_has_too_is_told_with_its_own_line(tmp_path: Path) -> None:
    network = "network:\n  southbound: 'unix:/run/x'\n  tunnels: 10.0.0.0/24\n  chassis: node"
    found = _layout(tmp_path, f"version: 1\n{network}\nuplinks:\n  lan: eno2")
    file = f"{tmp_path}/host_vars/h1.yml"
    parts = ("network.chassis", "network.tunnels", "uplinks.lan")
    assert [found.place_of(one) for one in parts] == [f"{file}:6", f"{file}:5", f"{file}:8"]
    assert [one.origin for one in values_of("h1", found, None)] == [f"{file}:6"]
