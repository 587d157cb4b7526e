# SPDX-License-Identifier: Apache-2.0
"""The images that a request names, by the catalogue alone; no host is asked."""

from collections.abc import Iterator

from vgpuctl.errors import ImageUnregistered
from vgpuctl.model.image import Image, ImageKind
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.session import Session


def refuse_unregistered(session: Session, request: VmRequest) -> None:
    """Accept a request whose images are all in the catalogue. Raises ImageUnregistered with what registers them."""
    for kind, name in named_images(request):
        registered(session, request, kind, name)


def named_images(request: VmRequest) -> Iterator[tuple[ImageKind, str]]:
    """The images that a request names, with the kind that each must have."""
    if request.disk is not None and request.disk.base_image is not None:
        yield ImageKind.DISK, request.disk.base_image
    if request.direct_kernel is not None:
        yield ImageKind.KERNEL, request.direct_kernel.kernel
        if request.direct_kernel.initrd is not None:
            yield ImageKind.INITRD, request.direct_kernel.initrd
    if request.install is not None:
        yield ImageKind.ISO, request.install.iso
        if request.install.drivers is not None:
            yield ImageKind.ISO, request.install.drivers


def registered(session: Session, request: VmRequest, kind: ImageKind, name: str) -> Image:
    """The image of the catalogue that a request names. Raises ImageUnregistered with what registers it."""
    image = session.find_image(name)
    if image is not None and image.kind is kind:
        return image
    what = {"disk": "base image", "iso": "installation medium"}.get(kind, str(kind))
    vm = f"VM {request.name} of tenant {request.tenant}"
    if image is not None:
        raise ImageUnregistered(
            f"{vm}: {name} is registered as {image.kind} image and cannot be the {what}",
            hint="see `vgpuctl list-images`",
        )
    new_name, option = ("NAME", f"--path {name}") if "/" in name else (name, f"--volume {name}")
    flags = "" if kind is ImageKind.DISK else f" --kind {kind}"
    known = [f"registered: {one.name}" for one in session.images() if one.kind is kind][:20]
    raise ImageUnregistered(
        f"{vm}: the {what} {name[:200]!a} is not in the catalogue of images",
        context=known,
        hint="the operator registers images: vgpuctl register-image "
        f"{new_name} {option}{flags} --format {'qcow2' if kind is ImageKind.DISK else 'raw'} --checksum sha256:…",
    )
