# SPDX-License-Identifier: Apache-2.0
"""The flags that describe a VM, shared by create-vm and render-vm, and how they become requests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = (
    click.option("-f", "--file", "file", type=click.Path(path_type=Path), metavar="FILE", help="VMs from a YAML file."),
    click.option("--tenant", metavar="NAME", help="The tenant the VM belongs to."),
    click.option(
        "--gpu",
        "gpus",
        multiple=True,
        metavar="WHAT",
        help="A40-8Q, 2*L40S-48Q, passthrough, passthrough:H100*4, vf:BOARD, '2*memory>=16GiB'; several times.",
    ),
    click.option("--vcpus", type=WholeRange(1, 512), default=2, show_default=True, help="Virtual CPUs."),
    click.option(
        "--memory", default="2GiB", show_default=True, metavar="SIZE", help="Memory: 512MiB, 8GiB, 4096 (MiB)."
    ),
    click.option(
        "--hugepages",
        metavar="SIZE",
        help="Make the memory of huge pages of this size, 2MiB or 1GiB, that its host keeps for it.",
    ),
    click.option("--disk", metavar="SIZE", help="Size of the disk; none without it and without --base-image."),
    click.option("--base-image", metavar="IMAGE", help="Base image of the disk, by its name in `list-images`."),
    click.option(
        "--pool", default="default", show_default=True, metavar="NAME", help="libvirt storage pool of the disk."
    ),
    click.option(
        "--network",
        default="default",
        show_default=True,
        metavar="NAME",
        help="The tenant's network of this name, else the host's libvirt network, or `none`.",
    ),
    click.option(
        "--security-group",
        "security_groups",
        multiple=True,
        metavar="NAME",
        help="Security group of the tenant for its port, several times; default: `default`.",
    ),
    click.option(
        "--bandwidth",
        "bandwidth_mbps",
        type=WholeRange(1, 400_000),
        metavar="MBIT/S",
        help="The most its port may send, and receive.",
    ),
    click.option(
        "--firmware", type=click.Choice(["bios", "uefi"]), default="bios", show_default=True, help="Firmware."
    ),
    click.option("--kernel", metavar="IMAGE", help="Boot this kernel directly; its name in `list-images`."),
    click.option("--initrd", metavar="IMAGE", help="Initial RAM disk for --kernel; its name in `list-images`."),
    click.option("--kernel-args", default="", metavar="TEXT", help="Command line for --kernel."),
    click.option(
        "--ssh-key", "ssh_keys", multiple=True, metavar="FILE", help="Public key for cloud-init's user; several times."
    ),
    click.option("--user-data", type=click.Path(path_type=Path), metavar="FILE", help="cloud-init user-data."),
    click.option(
        "--network-config", type=click.Path(path_type=Path), metavar="FILE", help="cloud-init network-config."
    ),
    click.option("--hostname", metavar="NAME", help="The guest's host name, by cloud-init."),
    click.option("--host", metavar="NAME", help="Only this host."),
    click.option(
        "--policy",
        metavar="POLICY",
        help="How to choose among what is allowed, for example spread or least-utilised@80.",
    ),
    click.option(
        "--require-label",
        "required",
        multiple=True,
        metavar="KEY=VALUE",
        help="Only GPUs with this label; several times.",
    ),
    click.option(
        "--prefer-label",
        "preferred",
        multiple=True,
        metavar="KEY=VALUE",
        help="GPUs with this label first; several times.",
    ),
    click.option(
        "--group",
        metavar="NAME[:RULE]",
        help="A group of the tenant's VMs: apart, together, prefer-apart (the default) or prefer-together.",
    ),
    click.option("--autostart", is_flag=True, help="Start the VM when its host boots."),
    click.option(
        "--priority",
        default="normal",
        show_default=True,
        metavar="CLASS",
        help="low (100), normal (500), high (700), critical (900) or a number from 0 to 1000.",
    ),
    click.option(
        "--preemptible",
        type=click.Choice(["stop", "requeue"]),
        help="A VM of a higher priority may take its shares; it is then kept stopped, or queued to start again.",
    ),
    click.option(
        "--for",
        "duration",
        metavar="DURATION",
        help="How long it is needed: 90m, 2h, 1d12h; `vgpuctl controller` then stops it.  [default: an open end]",
    ),
)


def vm_flags(function: Command) -> Command:
    """Add NAME and the flags of a VM."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return click.argument("name", required=False)(function)


def read_requests(
    *,
    name: str | None,
    file: Path | None,
    tenant: str | None,
    gpus: Sequence[str],
    vcpus: int,
    memory: str,
    hugepages: str | None,
    disk: str | None,
    base_image: str | None,
    pool: str,
    network: str,
    security_groups: Sequence[str],
    bandwidth_mbps: int | None,
    firmware: str,
    kernel: str | None,
    initrd: str | None,
    kernel_args: str,
    ssh_keys: Sequence[str],
    user_data: Path | None,
    network_config: Path | None,
    hostname: str | None,
    host: str | None,
    policy: str | None,
    required: Sequence[str],
    preferred: Sequence[str],
    group: str | None,
    autostart: bool,
    priority: str,
    preemptible: str | None,
    duration: str | None,
) -> list[Any]:
    """The VmRequests of a command line: one from flags, or all of a file. Raises UsageError."""
    from vgpuctl.model.constraints import read_constraints
    from vgpuctl.model.gpu_request import parse_gpu_request
    from vgpuctl.model.guest_memory import parse_page_size
    from vgpuctl.model.priority import parse_priority
    from vgpuctl.model.secret_text import SecretText
    from vgpuctl.model.times import parse_duration
    from vgpuctl.model.units import parse_mib
    from vgpuctl.model.vm import CloudInit, DirectKernel, DiskRequest, Firmware, Preemption, VmRequest, named_network
    from vgpuctl.usecases.vm.vm_file import check_request, read_vm_file

    if file is not None:
        if name is not None or gpus:
            raise UsageError("give either a NAME with flags or -f FILE, not both")
        return list(read_vm_file(file, tenant=tenant))
    if name is None:
        raise UsageError("no VM named", hint="vgpuctl create-vm NAME --tenant T --gpu A40-8Q, or -f FILE")
    if tenant is None:
        raise UsageError("no tenant named", hint="give --tenant NAME")
    if (initrd or kernel_args) and not kernel:
        raise UsageError("--initrd and --kernel-args need --kernel")
    disk_request = None
    if disk is not None or base_image is not None:
        disk_request = DiskRequest(parse_mib(disk or "10GiB", what="--disk"), base_image, pool)
    return [
        check_request(
            VmRequest(
                name=name,
                tenant=tenant,
                gpus=tuple(parse_gpu_request(text) for text in gpus),
                vcpus=vcpus,
                memory_mib=parse_mib(memory, what="--memory"),
                hugepages_kib=parse_page_size(hugepages, what="--hugepages") if hugepages is not None else None,
                disk=disk_request,
                network=named_network(network),
                firmware=Firmware(firmware),
                cloud_init=CloudInit(
                    tuple(_read(Path(path)).strip() for path in ssh_keys),
                    SecretText.of(_read(user_data)) if user_data else None,
                    SecretText.of(_read(network_config)) if network_config else None,
                    hostname,
                ),
                direct_kernel=DirectKernel(kernel, initrd, kernel_args) if kernel else None,
                host=host,
                autostart=autostart,
                priority=parse_priority(priority, what="--priority"),
                preemptible=Preemption(preemptible) if preemptible else None,
                constraints=read_constraints(policy=policy, required=required, preferred=preferred, group=group),
                security_groups=tuple(security_groups),
                bandwidth_mbps=bandwidth_mbps,
                duration_s=parse_duration(duration, what="--for") if duration is not None else None,
            )
        )
    ]


def _read(path: Path) -> str:
    from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded

    try:
        return decode(read_bounded(path))
    except Malformed as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from error
