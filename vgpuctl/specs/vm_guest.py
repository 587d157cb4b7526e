# SPDX-License-Identifier: Apache-2.0
"""The fields of a VM for the inside of its guest: installation, cloud-init seed, GPU driver and licence."""

from dataclasses import replace

from vgpuctl.errors import UsageError
from vgpuctl.model.guest_driver import DriverSource
from vgpuctl.model.licence import Edition
from vgpuctl.model.mps import MOST_CLIENTS, THREADS_HINT, Mps, format_threads, parse_threads
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import check_name
from vgpuctl.specs.compact import compact
from vgpuctl.specs.field import Choice, Compared, Document, Field, Section, Table, Text, Truth, Whole, text_like
from vgpuctl.specs.ssh_keys import parse_ssh_key
from vgpuctl.specs.vm_devices import SIZE


def _parse_secret(text: str, /, *, what: str) -> SecretText:
    return SecretText.of(text)


def _parse_key(text: str, /, *, what: str) -> str:
    """Accept a public key of OpenPGP in ASCII armour. Raises UsageError."""
    if not text.strip().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----"):
        raise UsageError(f"{what} is no public key of OpenPGP in ASCII armour", hint="gpg --export --armor NAME")
    return text


def _without_password(address: Text) -> Text:
    """The type of an address that every guest user could read, so that it may hold no password; none is repeated."""

    def parse(text: str, /, *, what: str) -> str:
        if "@" in text:
            raise UsageError(
                f"{what} has a user or a password before '@'", hint="everybody in the guest could read it: leave it out"
            )
        return str(address.parse(text, what=what))

    return replace(address, parse=parse)


DRIVER_VERSION = text_like(r"[0-9][0-9A-Za-z.+:~_-]{0,63}", "a version or branch such as 580.95.05 or 580")
_PACKAGE = text_like(r"[A-Za-z0-9][A-Za-z0-9.+:_-]{0,127}", "the name of a package")
_REPOSITORY = _without_password(
    text_like(
        r"deb (?:\[[^\]\s][^\]]*\] )?(?:https?|file)://?[^\s@]+(?: [^\s\[\]]+)+|(?:https?|file)://[^\s@]+",
        "a repository",
        hint="for APT `deb URI SUITE COMPONENT`, for DNF the address",
    )
)
_URL = _without_password(
    text_like(
        r"https?://[^\s/@]+/[^\s@]+",
        "the address of a file",
        hint="https://HOST/FILE",
    )
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SHA256 = text_like(r"[0-9a-f]{64}", "a SHA-256 checksum: 64 digits and letters a to f, as sha256sum prints it")

MPS = Table(
    "guest.mps",
    Mps,
    (
        Field(
            "clients",
            Whole(1, MOST_CLIENTS),
            "Number of programs that a GPU is divided among",
            is_required=True,
            example="4",
        ),
        Field(
            "threads",
            Text(parse_threads, format_threads, pattern="^[0-9]{1,3} ?%$", hint=THREADS_HINT),
            "Most of the GPU's threads that each may use; 100% divided by clients without it",
            "threads_percent",
            example="25%",
        ),
        Field(
            "memory",
            SIZE,
            "Most device memory that each may have; the GPU's, divided by clients, without it",
            "memory_mib",
            example="4GiB",
        ),
    ),
)

GUEST_FIELDS = (
    Field(
        "install.iso",
        Text(),
        "Installation medium, by its name in `list-images`",
        flag="--iso",
        metavar="IMAGE",
        is_required=True,
        example="windows-11-iso",
    ),
    Field(
        "install.drivers",
        Text(),
        "Medium with the virtio drivers that a Windows installer needs",
        flag="--drivers-iso",
        metavar="IMAGE",
        example="virtio-win",
    ),
    Field(
        "install.unattended",
        Truth(),
        "Answer the installer's questions",
        flag="--unattended",
        without_placement="the guest's installer reads it",
    ),
    Field(
        "guest_driver.source",
        Choice(DriverSource),
        "Where the guest's GPU driver comes from",
        flag="--guest-driver",
        example="packages",
    ),
    Field(
        "guest_driver.version",
        DRIVER_VERSION,
        "Version or branch of the driver, checked against the host's; the image's without it",
        flag="--guest-driver-version",
        metavar="VERSION",
        compared=Compared.IF_GIVEN,
        example="580",
    ),
    Field(
        "guest_driver.repository",
        _REPOSITORY,
        "Package repository with the driver: a line for APT, or the address of a DNF repository",
        example="deb https://packages.example/vgpu noble main",
    ),
    Field("guest_driver.key", Document(_parse_key), "Public key of the repository, in ASCII armour"),
    Field("guest_driver.package", _PACKAGE, "Package of the driver", example="nvidia-driver"),
    Field(
        "guest_driver.url",
        _URL,
        "Address of the driver's installer, of the operator",
        example="https://files.example/NVIDIA-Linux-x86_64-580.95.05-grid.run",
    ),
    Field("guest_driver.sha256", _SHA256, "Checksum of the driver's installer"),
    Field("guest_driver.toolkit", Truth(), "Install NVIDIA's container toolkit too, with a CDI specification"),
    Field("guest_driver.hold_kernel", Truth(), "Keep the kernel that the driver was built for"),
    Field(
        "guest.mps",
        replace(compact(MPS), hint="write {clients: 4, threads: 25%, memory: 4GiB}"),
        "Share each GPU among programs of the guest by NVIDIA's MPS: CLIENTS[,threads=25%][,memory=4GiB]",
        flag="--mps",
        metavar="MPS",
        example="{clients: 4, threads: 25%, memory: 4GiB}",
    ),
    Field(
        "licence",
        Choice(Edition),
        "Edition of the vGPU licence; as the vGPU type says without it",
        flag="--licence",
        example="vws",
    ),
    Field(
        "licence_pool",
        Text(check_name),
        "Pool of licences to take the seat from",
        flag="--licence-pool",
        metavar="NAME",
        compared=Compared.IF_GIVEN,
        example="dls-1",
    ),
    Field(
        "cloud_init.ssh_authorized_keys",
        Text(parse_ssh_key),
        "SSH public key for cloud-init's user",
        flag="--ssh-key",
        without_placement="the guest reads it",
        metavar="FILE",
        is_list=True,
        flag_names_file=True,
        example="[ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv alice]",
    ),
    Field(
        "cloud_init.user_data",
        Document(_parse_secret),
        "cloud-init user-data",
        flag="--user-data",
        metavar="FILE",
        without_placement="the guest reads it",
    ),
    Field(
        "cloud_init.network_config",
        Document(_parse_secret),
        "cloud-init network-config",
        flag="--network-config",
        metavar="FILE",
        without_placement="the guest reads it",
    ),
    Field(
        "cloud_init.hostname",
        text_like(
            rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*",
            "a host name (RFC 1123): words of letters, digits and inner hyphens, with dots between them",
        ),
        "Host name of the guest",
        flag="--hostname",
        without_placement="the guest reads it",
        metavar="NAME",
        example="web-1",
    ),
)
GUEST_SECTIONS = (
    Section("install", "Install the operating system from media", opened_by=("iso",)),
    Section("cloud_init", "The cloud-init seed"),
    Section("guest_driver", "The GPU's driver in the guest"),
    Section("guest", "What is set up in the guest beside its driver"),
)
LICENCE_TOKEN = Field(
    "licence_token",
    Document(_parse_secret),
    "NVIDIA's client configuration token, from the `secrets` of the tenant's file",
    "cloud_init.licence_token",
)
