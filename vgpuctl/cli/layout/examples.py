# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "plan-hosts": (
        Example("plan-hosts", "steps to the declared layout, by host and by kind"),
        Example("plan-hosts -l gpu1 --diff", "of one host, with each difference"),
    ),
    "apply-hosts": (
        Example("apply-hosts -l gpu1", "one host"),
        Example("apply-hosts --serial 25%", "a quarter of the fleet at a time"),
    ),
    "import-layout": (
        Example("import-layout --from-mig-parted config.yaml", "print a layout from mig-parted's file"),
        Example("import-layout --from-mdevctl mdevctl.d --host gpu1", "from mdevctl's files of a host"),
    ),
    "export layout": (
        Example("export layout gpu1 --for mig-parted", "print mig-parted's file"),
        Example("export layout gpu1 --for mdevctl --to mdevctl.d", "write a folder for mdevctl"),
    ),
    "export nova": (
        Example("export nova", "flavours and options for OpenStack Nova"),
        Example("export nova gpu1 --to nova", "files for one host"),
    ),
    "export proxmox": (
        Example("export proxmox gpu1", "hostpci lines and mappings for Proxmox"),
        Example("export proxmox --profile A40-8Q --to proxmox", "for one profile, as files"),
    ),
    "export kubevirt": (
        Example("export kubevirt", "permittedHostDevices for KubeVirt"),
        Example("export kubevirt gpu1 --profile A40-8Q", "for one host and profile"),
    ),
}
