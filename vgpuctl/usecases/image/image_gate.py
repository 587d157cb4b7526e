# SPDX-License-Identifier: Apache-2.0
"""The only way from a VM's request to a file of a host: by a name of the catalogue, verified on that host.

`support.registered_images` asks the store alone and runs before anything else. `images_on` asks the host too, and
volumes and domains are made from its answer only.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from vgpuctl.agent.wire.image import ImageFile
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import AgentProblem, ImageMissing, ImageRejected
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.image import BaseImage, HostImages, Image, ImageCopy, ImageFormat, ImageKind
from vgpuctl.model.vm import DirectKernel, Vm
from vgpuctl.usecases.found.registered_images import named_images, registered
from vgpuctl.usecases.image.volumes import paths_of
from vgpuctl.usecases.running.services import HostSession, Services


def images_on(services: Services, host: HostSession, vm: Vm, *, remember: bool) -> HostImages:
    """Verify every image of a new VM on its host. remember: note in the store what was verified.

    The content of a copy is read once. After that its size, inode and change time are compared, and it is read again
    when one of them differs. Raises ImageUnregistered, ImageMissing and ImageRejected.
    """
    request = vm.request
    copies: list[ImageCopy] = []
    paths: dict[ImageKind, ImageFile] = {}
    media: list[str] = []
    base = None
    for kind, name in named_images(request):
        with services.store.reading() as session:
            image = registered(session, request, kind, name)
            known = next((copy for copy in session.image_copies(name) if copy.host == vm.host), None)
        file = inspect(host, image, path_on(host, image))
        if known is None or _copy(image, vm.host, file, known.verified_at) != known:
            refuse_used_volume(services, host, image, file)
            services.say(f"{vm.host}: verifying image {name} by its checksum")
            digested = inspect(host, image, file.path, with_digest=True)
            check_digest(image, vm.host, digested)
            copies.append(_copy(image, vm.host, digested, services.store.now()))
        paths[kind] = file
        if kind is ImageKind.ISO:
            media.append(file.real_path)
        if kind is ImageKind.DISK:
            base = BaseImage(file.real_path, image.format, virtual_bytes(image, file))
    if copies and remember:
        with services.store.transaction() as session:
            for copy in copies:
                session.save_image_copy(copy)
    return HostImages(base, _kernel(request.direct_kernel, paths), None if base is None else base.format, tuple(media))


def images_again(services: Services, host: HostSession, vm: Vm) -> HostImages:
    """The images of a VM whose disk was made before: its kernel is verified again, its base image is not looked at."""
    request = vm.request
    base_format = None
    if request.disk is not None and request.disk.base_image is not None:
        with services.store.reading() as session:
            image = session.find_image(request.disk.base_image)
        base_format = None if image is None else image.format
    if request.direct_kernel is None and request.install is None:
        return HostImages(base_format=base_format)
    alone = replace(vm, request=replace(request, disk=None))
    with naming_ejection(vm):
        return replace(images_on(services, host, alone, remember=True), base_format=base_format)


@contextlib.contextmanager
def naming_ejection(vm: Vm) -> Iterator[None]:
    """Let the error of a VM that was installed before say that its medium is no longer needed."""
    try:
        yield
    except (ImageMissing, ImageRejected) as error:
        if vm.request.install is not None:
            command = f"vgpuctl eject-iso {vm.printed_name}"
            ejecting = f"when it is installed, run `{command}`"
            error.hint = f"{ejecting}; or {error.hint}" if error.hint else ejecting
        raise


def path_on(host: HostSession, image: Image) -> str:
    """The path of an image on a host. Raises ImageMissing when its pool has no such volume."""
    location = image.location
    if location.path is not None:
        return location.path
    assert location.pool is not None and location.volume is not None
    path = Storage(host.hypervisor).find_volume_path(location.pool, location.volume)
    if path is None:
        raise _missing(host, image, f"there is no {location.shown}")
    return path


def inspect(host: HostSession, image: Image, path: str, *, with_digest: bool = False) -> ImageFile:
    """Read an image's file on a host and compare it with the declared format.

    Raises ImageMissing, and ImageRejected for anything but a file, or for a qcow2 file with a backing file.
    """
    try:
        file = host.agent.image(path, with_digest=with_digest)
    except AgentProblem as problem:
        if problem.code == ProblemCode.NOT_FOUND:
            raise _missing(host, image, problem.message) from problem
        if problem.code not in (ProblemCode.UNREADABLE, ProblemCode.NOT_AN_IMAGE):
            raise
        raise ImageRejected(f"image {image.name} cannot be used on {host.name}: {problem.message}") from problem
    if image.format is ImageFormat.QCOW2:
        if file.qcow2 is None:
            raise ImageRejected(
                f"image {image.name} is registered as qcow2, and {path} on {host.name} is not a qcow2 file",
                hint="delete the image from the catalogue and register it with --format raw",
            )
        if file.qcow2.has_backing_file or file.qcow2.has_data_file:
            other = "a backing file" if file.qcow2.has_backing_file else "an external data file"
            raise ImageRejected(
                f"image {image.name}: {path} on {host.name} has {other} of its own, so its content is not all in it",
                hint="make it stand alone: qemu-img convert -O qcow2 OLD NEW",
            )
    return file


def check_digest(image: Image, host: str, file: ImageFile) -> None:
    """Compare the content with the registered checksum. Raises ImageRejected."""
    if file.sha256 != image.sha256:
        raise ImageRejected(
            f"image {image.name} on {host} is not what was registered: {file.path} has another checksum",
            context=[f"sha256:{file.sha256} on {host}", f"sha256:{image.sha256} registered"],
            hint="copy the right file there, or register the new content under another name",
        )


def refuse_used_volume(services: Services, host: HostSession, image: Image, file: ImageFile) -> None:
    """Refuse a file that a domain of the host may write, or that is a volume of a VM in the store.

    Raises ImageRejected.
    """
    places = {file.path, file.real_path}
    storage = Storage(host.hypervisor)
    for domain in host.hypervisor.domains():
        if places & {storage.disk_path(disk) for disk in domain.writable_disks}:
            raise ImageRejected(
                f"image {image.name}: {file.path} on {host.name} is a disk of domain {domain.name}, which may write it",
                hint="copy the disk while the domain is off, and register the copy",
            )
    with services.store.reading() as session:
        volumes = session.volumes(host=host.name)
    for volume in volumes:
        if places & paths_of(storage, [volume]):
            raise ImageRejected(
                f"image {image.name}: {file.path} on {host.name} belongs to VM {volume.vm_name} of tenant "
                f"{volume.tenant}",
                hint="copy it while the VM is stopped, and register the copy",
            )


def virtual_bytes(image: Image, file: ImageFile) -> int:
    """The size that a guest sees. A raw image is its bytes, whatever they look like."""
    if image.format is ImageFormat.RAW or file.qcow2 is None:
        return file.size_bytes
    return file.qcow2.virtual_bytes


def _missing(host: HostSession, image: Image, answer: str) -> ImageMissing:
    return ImageMissing(
        f"{host.name} has no copy of image {image.name}: {answer}",
        hint=f"copy the image to {host.name}, or choose a host that has it with --host",
    )


def _copy(image: Image, host: str, file: ImageFile, verified_at: float) -> ImageCopy:
    return ImageCopy(
        image.name, host, file.real_path, file.size_bytes, file.device, file.inode, file.changed_ns, verified_at
    )


def _kernel(wanted: DirectKernel | None, files: dict[ImageKind, ImageFile]) -> DirectKernel | None:
    if wanted is None:
        return None
    initrd = files.get(ImageKind.INITRD)
    return replace(
        wanted, kernel=files[ImageKind.KERNEL].real_path, initrd=None if initrd is None else initrd.real_path
    )
