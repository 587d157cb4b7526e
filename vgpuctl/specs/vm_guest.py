# SPDX-License-Identifier: Apache-2.0
"""The fields of a VM for the inside of its guest: installation, cloud-init seed, GPU driver and licence."""

from vgpuctl.model.guest_driver import DriverSource
from vgpuctl.model.licence import Edition
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import check_name
from vgpuctl.specs.field import Choice, Compared, Document, Field, Section, Text, Truth


def _parse_secret(text: str, /, *, what: str) -> SecretText:
    return SecretText.of(text)


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
    Field("install.unattended", Truth(), "Answer the installer's questions", flag="--unattended"),
    Field(
        "guest_driver.source",
        Choice(DriverSource),
        "Where the guest's GPU driver comes from",
        flag="--guest-driver",
        example="packages",
    ),
    Field(
        "guest_driver.version",
        Text(),
        "Version or branch of the driver, checked against the host's",
        flag="--guest-driver-version",
        metavar="VERSION",
        example="580",
    ),
    Field("guest_driver.repository", Text(), "Package repository with the driver", example="deb [trusted=yes] …"),
    Field("guest_driver.package", Text(), "Package of the driver", example="nvidia-driver"),
    Field("guest_driver.url", Text(), "Address of the driver's installer, of the operator", example="https://…"),
    Field("guest_driver.sha256", Text(), "Checksum of the driver's installer"),
    Field("guest_driver.toolkit", Truth(), "Install NVIDIA's container toolkit too, with a CDI specification"),
    Field("guest_driver.hold_kernel", Truth(), "Keep the kernel that the driver was built for"),
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
        Text(),
        "SSH public key for cloud-init's user",
        flag="--ssh-key",
        metavar="FILE",
        is_list=True,
        flag_names_file=True,
        example="[ssh-ed25519 AAAA… alice]",
    ),
    Field("cloud_init.user_data", Document(_parse_secret), "cloud-init user-data", flag="--user-data", metavar="FILE"),
    Field(
        "cloud_init.network_config",
        Document(_parse_secret),
        "cloud-init network-config",
        flag="--network-config",
        metavar="FILE",
    ),
    Field("cloud_init.hostname", Text(), "Host name of the guest", flag="--hostname", metavar="NAME", example="web-1"),
)
GUEST_SECTIONS = (
    Section("install", "Install the operating system from media", opened_by=("iso",)),
    Section("cloud_init", "The cloud-init seed"),
    Section("guest_driver", "The GPU's driver in the guest"),
)
LICENCE_TOKEN = Field(
    "licence_token",
    Document(_parse_secret),
    "NVIDIA's client configuration token, from the `secrets` of the tenant's file",
    "cloud_init.licence_token",
)
