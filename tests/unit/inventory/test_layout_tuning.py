# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode in a declared layout: read, written, refused."""

from pathlib import Path

import pytest
import yaml

from vgpuctl.agent.wire.tuning import UNLOCKED
from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.model.layout import DEFAULT_POWER, ComputeMode, HostLayout, TuningBounds, TuningLayout
from vgpuctl.specs.layout import GPU
from vgpuctl.specs.writing import write_entry


def read(folder: Path, entry: str) -> HostLayout:
    (folder / "hosts.yml").write_text("all: {hosts: {h1: }}\n")
    (folder / "host_vars").mkdir()
    text = f"vgpu:\n  version: 1\n  gpus:\n  - match: all\n    {entry}\n"
    (folder / "host_vars" / "h1.yml").write_text(text)
    layout = load_inventory([folder / "hosts.yml"]).layout("h1")
    assert layout is not None
    return layout


READ: dict[str, tuple[str, TuningLayout]] = {
    "none": ("", TuningLayout()),
    "watts": ("power_limit_w: 250", TuningLayout(power_limit_mw=250_000)),
    "half-watts": ("power_limit_w: 250.5", TuningLayout(power_limit_mw=250_500)),
    "default-power": ("power_limit_w: default", TuningLayout(power_limit_mw=DEFAULT_POWER)),
    "range": ("gpu_clocks_mhz: 1200-1700", TuningLayout(gpu_clocks_mhz=(1200, 1700))),
    "range-with-spaces": ("gpu_clocks_mhz: ' 1200 - 1700 '", TuningLayout(gpu_clocks_mhz=(1200, 1700))),
    "clock": ("gpu_clocks_mhz: 1500", TuningLayout(gpu_clocks_mhz=(1500, 1500))),
    "unlocked": ("gpu_clocks_mhz: default", TuningLayout(gpu_clocks_mhz=UNLOCKED)),
    "memory": ("memory_clocks_mhz: 405-7251", TuningLayout(memory_clocks_mhz=(405, 7251))),
    "memory-unlocked": ("memory_clocks_mhz: default", TuningLayout(memory_clocks_mhz=UNLOCKED)),
    "ecc": ("ecc: true", TuningLayout(ecc=True)),
    "no-ecc": ("ecc: off", TuningLayout(ecc=False)),
    "mode": ("compute_mode: exclusive-process", TuningLayout(compute_mode=ComputeMode.EXCLUSIVE_PROCESS)),
}


@pytest.mark.parametrize("name", READ)
def test_a_key_is_read_and_written_as_it_was(name: str, tmp_path: Path) -> None:
    keys, tuning = READ[name]
    (gpu,) = read(tmp_path, f"kind: off\n    {keys}").gpus
    assert gpu.tuning == tuning
    again = tmp_path / "again"
    again.mkdir()
    written = yaml.safe_dump({key: one for key, one in write_entry(GPU, gpu).items() if key != "match"})
    assert read(again, written.replace("\n", "\n    ")).gpus == (gpu,)


REFUSED: dict[str, tuple[str, str, str]] = {
    "power-with-unit": ("power_limit_w: 250W", "power_limit_w of host 'h1' is '250W'", "not a number"),
    "no-power": ("power_limit_w: 0", "is 0", "1 to 5000"),
    "milliwatts": ("power_limit_w: 250000", "is 250000", "1 to 5000"),
    "negative": ("power_limit_w: -250", "is -250", "1 to 5000"),
    "nan": ("power_limit_w: .nan", "is nan", "1 to 5000"),
    "infinite": ("power_limit_w: .inf", "is inf", "1 to 5000"),
    "true-power": ("power_limit_w: true", "is True", "not a number"),
    "list": ("power_limit_w: [250]", "power_limit_w of host 'h1'", "not a number"),
    "clocks-with-unit": ("gpu_clocks_mhz: 1500 MHz", "is '1500 MHz'", "write whole MHz without a unit"),
    "clocks-with-comma": ("gpu_clocks_mhz: 1200,1700", "is '1200,1700'", "as 1200-1700"),
    "hertz": ("gpu_clocks_mhz: 1500000000", "is '1500000000'", "whole MHz"),
    "clocks-nan": ("gpu_clocks_mhz: .nan", "is 'nan'", "whole MHz"),
    "clocks-half": ("gpu_clocks_mhz: 1200.5", "is '1200.5'", "whole MHz"),
    "clocks-zero": ("gpu_clocks_mhz: 0-1200", "is '0-1200'", "whole MHz"),
    "clocks-negative": ("gpu_clocks_mhz: -1200", "is '-1200'", "whole MHz"),
    "clocks-upside-down": ("gpu_clocks_mhz: 1700-1200", "whose first clock is above the second", "1200-1700?"),
    "clocks-open": ("gpu_clocks_mhz: 1700-", "is '1700-'", "whole MHz"),
    "clocks-three": ("gpu_clocks_mhz: 1200-1500-1700", "is '1200-1500-1700'", "whole MHz"),
    "memory-with-unit": ("memory_clocks_mhz: 7251 MHz", "is '7251 MHz'", "write whole MHz without a unit"),
    "clocks-list": ("gpu_clocks_mhz: [1200, 1700]", "gpu_clocks_mhz of host 'h1'", "whole MHz"),
    "clocks-true": ("gpu_clocks_mhz: true", "is True", "whole MHz"),
    "clocks-empty": ("gpu_clocks_mhz: ''", "gpu_clocks_mhz of host 'h1'", "whole MHz"),
    "ecc-word": ("ecc: enabled", "ecc of host 'h1' is 'enabled'", "not true or false"),
    "ecc-number": ("ecc: 1", "ecc of host 'h1' is 1", "not true or false"),
    "mode-of-old": ("compute_mode: exclusive-thread", "is 'exclusive-thread'", "exclusive-process"),
    "mode-number": ("compute_mode: 3", "compute_mode of host 'h1' is 3", "exclusive-process"),
    "misspelt": ("power_limit: 250", "power_limit", "did you mean power_limit_w?"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_value_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    keys, message, hint = REFUSED[name]
    with pytest.raises(InventoryError) as refused:
        read(tmp_path, f"kind: off\n    {keys}")
    assert refused.value.message.startswith(f"{tmp_path}/host_vars/h1.yml:6: ")
    assert message in refused.value.message
    assert hint in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("kind", "key", "belongs"),
    [
        ("kind: passthrough", "power_limit_w: 250", "vgpu and mig and mig-vgpu and off and host"),
        ("kind: passthrough", "memory_clocks_mhz: 7251", "vgpu and mig and mig-vgpu and off and host"),
        ("kind: passthrough", "gpu_clocks_mhz: 1500", "vgpu and mig and mig-vgpu and off and host"),
        ("kind: vf, count: 4", "ecc: true", "passthrough and vgpu and mig and mig-vgpu and off and host"),
        ("kind: mig, geometry: {}", "compute_mode: prohibited", "vgpu and off and host"),
        ("kind: off", "tune: {power_limit_w: 200-300}", "vgpu and mig-vgpu"),
    ],
)
def test_a_kind_whose_driver_does_not_keep_a_setting_refuses_it(
    kind: str, key: str, belongs: str, tmp_path: Path
) -> None:
    with pytest.raises(InventoryError) as refused:
        read(tmp_path, "\n    ".join([*kind.split(", "), key]))
    assert f"'{key.partition(':')[0]}' belongs to {belongs}" in refused.value.message


def test_a_gpu_for_containers_has_every_setting_but_no_compute_mode_beside_mig(tmp_path: Path) -> None:
    keys = ("power_limit_w: 250", "gpu_clocks_mhz: 1500", "ecc: true", "compute_mode: exclusive-process")
    (gpu,) = read(tmp_path, "\n    ".join(["kind: host", *keys])).gpus
    assert gpu.tuning == TuningLayout(250_000, (1500, 1500), True, ComputeMode.EXCLUSIVE_PROCESS)
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(InventoryError) as refused:
        read(again, "\n    ".join(["kind: host", "geometry: {1g.5gb: 2}", keys[-1]]))
    assert "contradicts geometry" in refused.value.message and "host_vars/h1.yml:7" in refused.value.message


BOUNDS = {"200-300": (200_000, 300_000), "' 200.5 - 300 '": (200_500, 300_000), "1-5000": (1000, 5_000_000)}


@pytest.mark.parametrize("text", BOUNDS)
def test_bounds_for_a_controller_are_read_and_written(text: str, tmp_path: Path) -> None:
    (gpu,) = read(tmp_path, f"kind: vgpu\n    tune: {{power_limit_w: {text}}}").gpus
    assert (gpu.tuning, gpu.bounds) == (TuningLayout(), TuningBounds(BOUNDS[text]))
    again = tmp_path / "again"
    again.mkdir()
    written = yaml.safe_dump({key: one for key, one in write_entry(GPU, gpu).items() if key != "match"})
    assert read(again, written.replace("\n", "\n    ")).gpus == (gpu,)


REFUSED_BOUNDS: dict[str, tuple[str, str]] = {
    "one-limit": ("tune: {power_limit_w: 250}", "200-300"),
    "unit": ("tune: {power_limit_w: 200-300 W}", "without a unit"),
    "upside-down": ("tune: {power_limit_w: 300-200}", "whose first limit is not below the second"),
    "no-width": ("tune: {power_limit_w: 250-250}", "whose first limit is not below the second"),
    "zero": ("tune: {power_limit_w: 0-300}", "a power limit is 1 to 5000 W"),
    "milliwatts": ("tune: {power_limit_w: 20000-30000}", "a power limit is 1 to 5000 W"),
    "nan": ("tune: {power_limit_w: .nan}", "200-300"),
    "nan-in-text": ("tune: {power_limit_w: nan-300}", "not two power limits"),
    "default": ("tune: {power_limit_w: default}", "not two power limits"),
    "list": ("tune: {power_limit_w: [200, 300]}", "200-300"),
    "nothing": ("tune: {}", "power_limit_w"),
    "no-mapping": ("tune: 200-300", "tune"),
    "another-setting": ("tune: {ecc: true}", "ecc"),
    "declared-too": ("power_limit_w: 250\n    tune: {power_limit_w: 200-300}", "contradicts power_limit_w"),
}


@pytest.mark.parametrize("name", REFUSED_BOUNDS)
def test_wrong_bounds_for_a_controller_are_refused_with_their_line(name: str, tmp_path: Path) -> None:
    keys, told = REFUSED_BOUNDS[name]
    with pytest.raises(InventoryError) as refused:
        read(tmp_path, f"kind: vgpu\n    {keys}")
    assert refused.value.message.startswith(f"{tmp_path}/host_vars/h1.yml:{keys.count(chr(10)) + 6}: ")
    assert told in f"{refused.value.message} {refused.value.hint}"
