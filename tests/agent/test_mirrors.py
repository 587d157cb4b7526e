# SPDX-License-Identifier: Apache-2.0
"""`facts/X.py` reads what `changes/X.py` changes, under the same name; the others have a reason."""

from pathlib import Path

from vgpuctl.agent import changes, facts

# Changes whose state is read elsewhere, or not at all.
ELSEWHERE = {
    "certificate": "a file is compared with the wanted bytes; facts/ovn.py says whether there is one",
    "driver": "a function's driver is part of its identity, in facts/pci.py",
    "fabric_mode": "the mode is one reading with the partitions, in facts/fabric.py",
    "gpu_instance": "the GPU instances are one reading with the MIG mode, in facts/mig.py and facts/nvml_mig.py",
    "gpu_reset": "a reset leaves nothing to read but the MIG mode that it makes current",
    "function_params": "the parameters of PF and VFs are one reading with those of VMs, in facts/sriov_admin.py",
    "heterogeneous": "the mode is read by NVML with the card's other values, in facts/nvml_vgpu.py",
    "mig_mode": "the mode is one reading with the GPU instances, in facts/mig.py and facts/nvml_mig.py",
    "partition": "the partitions are one reading with the mode, in facts/fabric.py",
    "reset": "a reset leaves nothing to read",
    "tuning": "the settings are read by NVML with the card's other values, in facts/nvml_tuning.py",
    "rom": "the ROM is only read when a card comes back from a VM; the change itself says its hash",
}
# Parts of several changes: none of them is a step of its own.
PARTS = {
    "assumed",
    "boot_unit",
    "function_programs",
    "guest_state",
    "letting_go",
    "persistence",
    "refusal",
    "sriov_manage",
    "unbind_lock",
    "vgpu_params",
    "vgpu_type",
}


def _names(package: object) -> set[str]:
    folder = Path(str(package.__file__)).parent  # type: ignore[attr-defined]
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


def _has_ensure(name: str) -> bool:
    return "\ndef ensure" in (Path(changes.__file__).parent / f"{name}.py").read_text()


def test_every_change_has_its_reading_under_the_same_name() -> None:
    steps = {name for name in _names(changes) if _has_ensure(name)}
    assert steps - _names(facts) == set(ELSEWHERE)


def test_the_parts_of_changes_are_no_steps() -> None:
    assert {name for name in _names(changes) if not _has_ensure(name)} == PARTS
