# SPDX-License-Identifier: Apache-2.0
"""delete-image: take an image that no VM uses out of the operator's catalogue."""

from collections.abc import Iterator

from vgpuctl.errors import ImageInUse
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.image import Image
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.store import Session
from vgpuctl.usecases.image.register_image import values_of
from vgpuctl.usecases.support.registered_images import named_images
from vgpuctl.usecases.support.services import Services


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
                hint="delete these VMs first, or take an install medium out of them by `vgpuctl eject-iso`",
            )
        session.delete_image(name)
        session.add_event(EventKind.IMAGE_DELETED, name, before=values_of(image))
    return image


def _requests(session: Session) -> Iterator[VmRequest]:
    yield from (vm.request for vm in session.vms())
    yield from (kept.request for kept in session.kept_vms())
    for entry in session.queue():
        yield from entry.requests
