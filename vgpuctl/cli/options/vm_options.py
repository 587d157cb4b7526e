# SPDX-License-Identifier: Apache-2.0
"""The options that describe a VM, shared by create-vm, render-vm and explain-vm: the VM's table, or a file of VMs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from vgpuctl.cli.options.field_options import field_options
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import NO_GPU
from vgpuctl.specs.vm import VM

Command = TypeVar("Command", bound=Callable[..., Any])


def vm_flags(function: Command) -> Command:
    """Add NAME, the flags of a VM and -f."""
    function = field_options(VM)(function)
    file = click.Path(path_type=Path)
    text = "Read VMs from a YAML file; `-` is standard input."
    function = click.option("-f", "--file", "file", type=file, metavar="FILE", help=text)(function)
    return click.argument("name", required=False)(function)


def read_requests(*, file: Path | None, tenant: str | None, is_hypothetical: bool = False, **given: Any) -> list[Any]:
    """The VmRequests of a command line: one from flags, or all of a file. Raises UsageError.

    is_hypothetical: flags need neither name nor tenant.
    """
    from vgpuctl.specs.vm import read_hypothetical_vm, read_vm_file, read_vm_flags

    given["gpus"] = gpus_given(given["gpus"])
    if file is None:
        read = read_hypothetical_vm if is_hypothetical else read_vm_flags
        return [read({"tenant": tenant, **given}, read_text_file)]
    flags = [field.flag for field in VM.fields if given.get(field.parameter) not in (None, ())]
    if flags:
        named = "NAME" if flags[0] is None else flags[0]
        raise UsageError(f"-f FILE and {named} exclude each other", hint="give NAME with flags, or -f FILE")
    return list(read_vm_file(file, tenant=tenant))


def fields_given(given: Mapping[str, Any]) -> frozenset[str]:
    """The keys of the VM's fields that stand on the command line."""
    return frozenset(field.key for field in VM.fields if given.get(field.parameter) not in (None, ()))


def gpus_given(written: tuple[str, ...]) -> tuple[str, ...]:
    """The values of --gpu, none for `none` alone."""
    return () if written == (NO_GPU,) else written


def read_text_file(path: str) -> str:
    """The text of a file that a flag names. Raises UsageError."""
    from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded
    from vgpuctl.trusted_files import NAMED

    try:
        return decode(read_bounded(Path(path), NAMED))
    except Malformed as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from error
