# SPDX-License-Identifier: Apache-2.0
"""Questions about placement describe a VM by create-vm's table: what they leave out has a reason that is true."""

import copy
from dataclasses import fields as attributes
from typing import Any

import click
import pytest

from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.cli.placement.capacity import command as capacity_command
from vgpuctl.cli.vm.create_vm import command as create_command
from vgpuctl.errors import UsageError
from vgpuctl.model.host_parts import parts_needed
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.guest_place import need_of
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.specs.field import Choice, Field, Truth, Whole
from vgpuctl.specs.vm import VM
from vgpuctl.usecases.telemetry.count_more import form_fields, read_request

_OPENED: dict[str, dict[str, Any]] = {
    "direct_kernel": {"direct_kernel": {"kernel": "/boot/vmlinuz"}},
    "install": {"install": {"iso": "debian-13"}},
}
"""What gives a section its meaning, without the field itself."""
LEFT_OUT = [field for field in VM.fields if field.without_placement]
WITH_A_FLAG = [field for field in VM.fields if field.flag is not None]


def test_capacity_takes_every_option_of_a_vm() -> None:
    flags = {field.flag for field in WITH_A_FLAG}
    assert flags <= _flags(capacity_command) & _flags(create_command)


def test_the_form_has_a_field_for_every_option_that_may_matter() -> None:
    asked = {f"--{one.name}" for one in form_fields()}
    assert asked == {field.flag for field in WITH_A_FLAG} - {field.flag for field in LEFT_OUT}
    assert len(asked) > 40


@pytest.mark.parametrize("field", LEFT_OUT, ids=lambda field: field.key)
def test_what_is_left_out_changes_nothing_that_placing_looks_at(field: Field) -> None:
    outer = field.path.partition(".")[0]
    plain = {"name": "any", "tenant": "acme", "vcpus": 4, "memory_mib": 8192, **_OPENED.get(outer, {})}
    values = _with(copy.deepcopy(plain), field.path, _value(field))
    assert _seen_by_placing(VM.build(values)) == _seen_by_placing(VM.build(plain))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vgpu-display", "ramfb"),
        ("hugepages", "1GiB"),
        ("require-label", "rack=r1 tier=gold"),
        ("vgpu-param", "frame_rate_limiter=0"),
        ("guest-driver-version", "550"),
        ("firmware", "uefi"),
        ("tpm", "on"),
        ("host", "gpu1"),
        ("licence", "vws"),
        ("spare-ports", "2"),
    ],
)
def test_the_form_reads_an_option_as_the_command_line_does(name: str, text: str) -> None:
    plain, with_it = read_request({"gpu": "A40-8Q"}), read_request({"gpu": "A40-8Q", name: text})
    assert plain is not None and with_it is not None
    differing = [one.name for one in attributes(VmRequest) if getattr(plain, one.name) != getattr(with_it, one.name)]
    assert differing, f"{name} changes the request"


@pytest.mark.parametrize(
    ("name", "text"),
    [("vcpus", "0"), ("vcpus", "9999999999"), ("vgpu-display", "hdmi"), ("spare-ports", "-1"), ("host", "\x00")],
)
def test_a_value_that_no_vm_has_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError):
        read_request({"gpu": "A40-8Q", name: text})


def _flags(command: click.Command) -> set[str]:
    return {flag for one in command.params for flag in one.opts}


def _seen_by_placing(request: VmRequest) -> tuple[Any, ...]:
    constraints = request.constraints
    needs = need_of(request), parts_needed(request), request.hugepages_kib, request.host, request.duration_s
    return (*needs, tuple(share_requests_of(request)), terms_of(request), constraints.policy, constraints.required)


def _value(field: Field) -> Any:
    """A value of the field that is not its default."""
    if isinstance(field.type, Truth):
        return True
    if isinstance(field.type, Choice):
        return list(field.type.members)[-1]
    if isinstance(field.type, Whole):
        return field.type.highest
    return (("a", "b"),) if field.is_several else 900 if field.key == "priority" else "something"


def _with(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    outer, _, inner = path.partition(".")
    values[outer] = _with(values.get(outer, {}), inner, value) if inner else value
    return values
