# SPDX-License-Identifier: Apache-2.0
"""The catalogue of images that VMs can name; no list of them loads what looks at copies."""

from collections.abc import Iterator
from dataclasses import dataclass

from vgpuctl.errors import ImageDiffers, ImageInUse, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.image import Image, ImageCopy, ImageFormat, ImageKind, ImageLocation
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.found.registered_images import named_images
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ImageRequest:
    """An image as the operator gave it. sha256: None to take it from a host's copy."""

    name: str
    kind: ImageKind
    format: ImageFormat
    location: ImageLocation
    sha256: str | None = None
    os: str | None = None
    guest_driver: str | None = None


def register_image(services: Services, wanted: ImageRequest, *, host: str | None) -> tuple[Image, bool]:
    """Add an image to the catalogue. Returns it, and False when the same image was there already.

    host: read the copy of this host now; its checksum is compared with the given one, or taken where none is given.
    Raises ImageDiffers for another image of this name, ImageRejected for a copy that cannot be used.
    """
    from vgpuctl.catalog.vgpu_versions import parse_driver

    if wanted.sha256 is None and host is None:
        raise UsageError(
            f"image {wanted.name} has no checksum",
            hint="give --checksum sha256:…, or --host HOST to take it from that host's copy",
        )
    if wanted.guest_driver is not None and parse_driver(wanted.guest_driver) is None:
        raise UsageError(f"{wanted.guest_driver!a} is no version of NVIDIA's driver", hint="for example 580.105.06")
    with services.store.reading() as session:
        there = session.find_image(wanted.name)
    sha256 = wanted.sha256 or _digest_on(services, wanted, host)
    image = Image(wanted.name, wanted.kind, wanted.format, sha256, wanted.location, wanted.os, wanted.guest_driver)
    if wanted.sha256 is not None and host is not None:
        _digest_on(services, wanted, host, image)
    if there is not None:
        _refuse_other(there, image)
        return there, False
    with services.store.transaction() as session:
        session.add_image(image)
        session.add_event(EventKind.IMAGE_REGISTERED, image.name, after=values_of(image))
    return image, True


def values_of(image: Image) -> Values:
    """The values of an image for its events."""
    place = image.location.shown
    return {
        "kind": str(image.kind),
        "format": str(image.format),
        "sha256": image.sha256,
        "place": place,
        "os": image.os,
        "guest_driver": image.guest_driver,
    }


def _digest_on(services: Services, wanted: ImageRequest, name: str | None, image: Image | None = None) -> str:
    from vgpuctl.usecases.image.image_gate import check_digest, inspect, path_on, refuse_used_volume

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
            ("guest driver", there.guest_driver or "-", wanted.guest_driver or "-"),
        )
        if before != after
    ]
    if differences:
        raise ImageDiffers(
            f"image {there.name} is registered otherwise",
            context=differences,
            hint="register the other content under another name; VMs keep the image they were made from",
        )


@dataclass(frozen=True)
class ListedImage:
    """An image, and the hosts where its copy was verified."""

    image: Image
    copies: tuple[ImageCopy, ...]


def list_images(services: Services) -> list[ListedImage]:
    """Every image by name, with its verified copies. No host is contacted."""
    with services.store.reading() as session:
        copies = session.image_copies()
        images = session.images()
    return [ListedImage(image, tuple(copy for copy in copies if copy.image == image.name)) for image in images]


def delete_image(services: Services, image: Image) -> None:
    """Take an image out of the catalogue; its files on hosts stay. Raises NotFound, ImageInUse."""
    with services.store.transaction() as session:
        there = session.image(image.name)
        users = [
            f"VM {request.name} of tenant {request.tenant}"
            for request in _requests(session)
            if there.name in {used for _, used in named_images(request)}
        ]
        if users:
            raise ImageInUse(
                f"image {there.name} is used by {users[0]}" + (f" and {len(users) - 1} more" if users[1:] else ""),
                context=users[:20],
                hint="delete these VMs first, or take an install medium out of them by `vgpuctl eject-iso`",
            )
        session.delete_image(there.name)
        session.add_event(EventKind.IMAGE_DELETED, there.name, before=values_of(there))


def _requests(session: Session) -> Iterator[VmRequest]:
    yield from (vm.request for vm in session.vms())
    yield from (kept.request for kept in session.kept_vms())
    for entry in session.queue():
        yield from entry.requests


DELETION = Deletion(
    find=lambda session, _tenant, name: session.image(name),
    names=lambda session, _tenant: [one.name for one in session.images()],
    printed=lambda one: one.name,
    describe=lambda image: f"image {image.name}: {image.kind}, {image.location.shown}",
    delete=delete_image,
    left=lambda image: f"{image.location.shown} stays on the hosts",
)
