# SPDX-License-Identifier: Apache-2.0
"""register-image, list-images and delete-image: the operator's catalogue of images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ImageDiffers, ImageInUse, UsageError
from vgpuctl.model.image import UNREGISTERED, Image, ImageCopy, ImageFormat, ImageKind, ImageLocation
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.image_gate import check_digest, inspect, named_images, path_on, refuse_used_volume


@dataclass(frozen=True)
class ImageRequest:
    """An image as the operator gave it. sha256: None to take it from a host's copy."""

    name: str
    kind: ImageKind
    format: ImageFormat
    location: ImageLocation
    sha256: str | None = None
    os: str | None = None


@dataclass(frozen=True)
class ListedImage:
    """An image, and the hosts where its copy was verified."""

    image: Image
    copies: tuple[ImageCopy, ...]


def register_image(
    services: Services, wanted: ImageRequest, *, host: str | None, dry_run: bool = False
) -> tuple[Image, bool]:
    """Add an image to the catalogue. Returns it, and False when the same image was there already.

    host: read the copy of this host now; its checksum is compared with the given one, or taken where none is given.
    VMs that were made from this place before there was a catalogue get the name into their request.
    Raises ImageDiffers for another image of this name, ImageRejected for a copy that cannot be used.
    """
    if wanted.sha256 is None and host is None:
        raise UsageError(
            f"image {wanted.name} has no checksum",
            hint="give --checksum sha256:…, or --host HOST to take it from that host's copy",
        )
    with services.store.reading() as session:
        there = session.find_image(wanted.name)
    sha256 = wanted.sha256 or _digest_on(services, wanted, host)
    image = Image(wanted.name, wanted.kind, wanted.format, sha256, wanted.location, wanted.os)
    if wanted.sha256 is not None and host is not None:
        _digest_on(services, wanted, host, image)
    if there is not None:
        _refuse_other(there, image)
        return there, False
    if not dry_run:
        with services.store.transaction() as session:
            session.add_image(image)
            _adopt_older(session, image)
            session.add_event("image-registered", image.name, f"{image.kind}, {image.location.shown}")
    return image, True


def list_images(services: Services) -> list[ListedImage]:
    """Every image by name, with its verified copies. No host is contacted."""
    with services.store.reading() as session:
        copies = session.image_copies()
        images = session.images()
    return [ListedImage(image, tuple(copy for copy in copies if copy.image == image.name)) for image in images]


def delete_image(services: Services, name: str) -> Image:
    """Take an image out of the catalogue; its files on hosts stay. Raises NotFound, ImageInUse."""
    with services.store.transaction() as session:
        image = session.image(name)
        users = [
            f"VM {request.name} of tenant {request.tenant}"
            for request in _requests(session)
            if name in {used for _, used in named_images(request)}
        ]
        if users:
            raise ImageInUse(
                f"image {name} is used by {users[0]}" + (f" and {len(users) - 1} more" if users[1:] else ""),
                context=users[:20],
                hint="delete these VMs first, or keep the image",
            )
        session.delete_image(name)
        session.add_event("image-deleted", name)
    return image


def _digest_on(services: Services, wanted: ImageRequest, name: str | None, image: Image | None = None) -> str:
    assert name is not None
    host = services.host(name)
    known = image or Image(wanted.name, wanted.kind, wanted.format, "", wanted.location, wanted.os)
    services.say(f"{name}: reading {wanted.location.shown}")
    file = inspect(host, known, path_on(host, known), with_digest=True)
    refuse_used_volume(services, host, known, file)
    if image is not None:
        check_digest(image, name, file)
    assert file.sha256 is not None
    return file.sha256


def _refuse_other(there: Image, wanted: Image) -> None:
    differences = [
        f"{what}: {before} there, {after} wanted"
        for what, before, after in (
            ("kind", there.kind, wanted.kind),
            ("format", there.format, wanted.format),
            ("place", there.location.shown, wanted.location.shown),
            ("checksum", f"sha256:{there.sha256}", f"sha256:{wanted.sha256}"),
            ("os", there.os or "-", wanted.os or "-"),
        )
        if before != after
    ]
    if differences:
        raise ImageDiffers(
            f"image {there.name} is registered otherwise",
            context=differences,
            hint="register the other content under another name; VMs keep the image they were made from",
        )


def _requests(session: Session) -> Iterator[VmRequest]:
    yield from (vm.request for vm in session.vms())
    for entry in session.queue():
        yield from entry.requests


def _adopt_older(session: Session, image: Image) -> None:
    """Write the name of the new image into the requests of VMs that were made from its place before."""
    for vm in session.vms():
        request = vm.request
        if image.kind is ImageKind.DISK and request.disk is not None:
            older = _older_places(image, request.disk.pool)
            if request.disk.base_image in older:
                request = replace(request, disk=replace(request.disk, base_image=image.name))
        kernel = request.direct_kernel
        if kernel is not None and image.kind is ImageKind.KERNEL and kernel.kernel in _older_places(image):
            request = replace(request, direct_kernel=replace(kernel, kernel=image.name))
        if kernel is not None and image.kind is ImageKind.INITRD and kernel.initrd in _older_places(image):
            request = replace(request, direct_kernel=replace(kernel, initrd=image.name))
        if request != vm.request:
            session.set_vm_request(vm.uuid, request)


def _older_places(image: Image, pool: str | None = None) -> Sequence[str]:
    location = image.location
    if location.path is not None:
        return [UNREGISTERED + location.path]
    return [f"{UNREGISTERED}{location.volume}"] if pool is not None and location.pool == pool else []
