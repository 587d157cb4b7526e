# SPDX-License-Identifier: Apache-2.0
"""The seed that a simulated host has of a VM."""

import email
import io
from pathlib import Path

import pycdlib

from tests.e2e.libvirt_of import libvirt_of


def vendor_scripts(inventory: Path, host: str, vm_uuid: str) -> list[str]:
    """The scripts of the vendor-data in a VM's seed, in their order."""
    with libvirt_of(inventory, host) as there:
        connection = there.connection
        volume = connection.storagePoolLookupByName("default").storageVolLookupByName(f"{vm_uuid}-seed.iso")
        stream = connection.newStream(0)
        # The simulated host has no more of a volume than was written, and answers for a whole one.
        volume.download(stream, 0, 0, 0)
        data = bytearray()
        while part := stream.recv(65536):
            data += part
        stream.finish()
    image = pycdlib.PyCdlib()
    image.open_fp(io.BytesIO(bytes(data)))
    vendor_data = io.BytesIO()
    try:
        image.get_file_from_iso_fp(vendor_data, rr_path="/vendor-data")
    except pycdlib.pycdlibexception.PyCdlibInvalidInput:
        return []
    finally:
        image.close()
    text = vendor_data.getvalue().decode()
    document = email.message_from_string(text)
    if not document.is_multipart():
        return [text]
    contents = [one.get_payload(decode=True) for one in document.walk() if not one.is_multipart()]
    return [content.decode() for content in contents if isinstance(content, bytes)]
