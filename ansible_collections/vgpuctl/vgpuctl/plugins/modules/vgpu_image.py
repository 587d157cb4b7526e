# SPDX-License-Identifier: Apache-2.0
"""Make an image present in the catalogue, or absent from it."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_image
short_description: Make a base image, kernel, initrd or install medium present in the catalogue or absent
description:
  - Runs C(vgpuctl register-image) and C(delete-image). No file on a host is written or deleted.
  - An image that is there with another place, format or checksum is a failure that tells what differs.
  - In check mode nothing is written.
options:
  name:
    description: The image's name.
    type: str
    required: true
  state:
    description: V(present) registers it, V(absent) removes it from the catalogue; an image that a VM uses stays.
    type: str
    choices: [present, absent]
    default: present
  path:
    description: Absolute path of the image, the same on every host that has it. O(path) or O(volume) with V(present).
    type: str
  volume:
    description: Volume of a libvirt storage pool, in place of O(path).
    type: str
  pool:
    description: The storage pool of O(volume), V(default) otherwise.
    type: str
  format:
    description: Format of the content. Required with V(present).
    type: str
    choices: [qcow2, raw]
  kind:
    description: Use of the image.
    type: str
    choices: [disk, kernel, initrd, iso]
    default: disk
  checksum:
    description: SHA-256 of the whole file, as C(sha256:HEX).
    type: str
  host:
    description: Verify the copy of this host now; without O(checksum), take its checksum.
    type: str
  os:
    description: Operating system, for people.
    type: str
  guest_driver:
    description: Version or branch of the NVIDIA driver in it.
    type: str
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Debian, as gpu1 has it
  vgpuctl.vgpuctl.vgpu_image:
    name: debian-13
    path: /var/lib/libvirt/images/debian-13.qcow2
    format: qcow2
    host: gpu1
  delegate_to: localhost
"""

RETURN = """
image:
  description:
    - The image and its verified copies as in C(vgpuctl list-images --json), none if it is absent.
    - In check mode, as it is.
  returned: success
  type: dict
  sample: {image: {name: debian-13, kind: disk, format: qcow2}, copies: [{host: gpu1}]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "str"},
            "volume": {"type": "str"},
            "pool": {"type": "str"},
            "format": {"type": "str", "choices": ["qcow2", "raw"]},
            "kind": {"type": "str", "choices": ["disk", "kernel", "initrd", "iso"], "default": "disk"},
            "checksum": {"type": "str"},
            "host": {"type": "str"},
            "os": {"type": "str"},
            "guest_driver": {"type": "str"},
        },
        mutually_exclusive=[("path", "volume")],
        required_by={"pool": ["volume"]},
        required_if=[("state", "present", ["format"]), ("state", "present", ["path", "volume"], True)],
        supports_check_mode=True,
    )
    vgpuctl, name = Vgpuctl(module), module.params["name"]

    def find() -> dict[str, Any] | None:
        return next((one for one in vgpuctl.read("list-images") if one["image"]["name"] == name), None)

    def create(_before: dict[str, Any] | None) -> bool:
        words = vgpuctl.options("path", "volume", "pool", "format", "kind", "checksum", "host", "os", "guest_driver")
        return bool(vgpuctl.change("register-image", *words, "--", name, on_hosts=True)["changed"])

    def delete() -> bool:
        vgpuctl.change("delete-image", "--yes", "--", name)
        return True

    vgpuctl.keep("image", find, create, delete)


if __name__ == "__main__":
    main()
