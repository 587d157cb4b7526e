# SPDX-License-Identifier: Apache-2.0
"""Gates of guests' definitions, firmware and TPM."""

from tests.unit.uses_of_names import guarded

GUESTS = [
    guarded(
        "a domain is undefined only after its UUID was compared",
        "undefine",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:remove_domain",
        "usecases/maintenance/gc.py:_undefine",
        on="hypervisor",
    ),
    guarded(
        "which UEFI build a guest boots is decided once, and the check asks the same function",
        "unwanted_feature",
        "model/guest_firmware.py",
        "guests/domain/firmware_view.py:uefi_view",
        "planner/doctor/platform_checks.py:guest_firmware",
    ),
    guarded(
        "UEFI variables and a TPM are removed with their VM, or from a host that it has left",
        "guest_state",
        "hosts/agent_client.py",
        "usecases/domain/guest_state.py:carry_state",
        "usecases/domain/guest_state.py:_ask",
        "usecases/maintenance/gc.py:_look",
        "usecases/maintenance/gc.py:_undefine",
        on="agent",
    ),
]
