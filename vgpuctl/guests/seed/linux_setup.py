# SPDX-License-Identifier: Apache-2.0
"""The vendor-data of Linux guests: a script that sets the guest up for its GPU, before the scripts of user-data run.

It is a script because cloud-init does not merge the lists of vendor-data and user-data: `write_files`, `runcmd` or
`packages` of a user replace those of the vendor as a whole. Vendor scripts run beside them, by the module
scripts-vendor. Source: cloud-init, doc/rtd/explanation/vendordata.rst and cloudinit/helpers.py (ConfigMerger)."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.guests.facts.guest_report import PROBE_PATH, probe_script
from vgpuctl.guests.templating import render_template
from vgpuctl.model.guest_driver import GuestDriver
from vgpuctl.model.licence import Edition
from vgpuctl.model.mps import Mps
from vgpuctl.model.vm import CloudInit, VmRequest


# Files of vgpuctl that every guest with a GPU driver gets, beside what the set-up itself writes.
@dataclass(frozen=True)
class GuestFile:
    """One file. mode: as chmod takes it. content: its bytes, in base64."""

    path: str
    mode: str
    content: str


def guest_files(mps: Mps | None = None) -> tuple[GuestFile, ...]:
    """The probe of `check-vm`, which runs only where the tenant allows it, and what the unit of MPS runs."""
    scripts = {PROBE_PATH: probe_script()}
    if mps is not None:
        scripts[MPS_PATH] = render_template("guest-mps.sh.j2", mps=mps)
    return tuple(GuestFile(path, "0755", base64.b64encode(text.encode()).decode()) for path, text in scripts.items())


MPS_PATH = "/usr/local/lib/vgpuctl/mps"
APT_KEY_PATH = "/etc/apt/keyrings/vgpuctl-driver.asc"
# NVIDIA Virtual GPU Client Licensing User Guide: a vGPU's type says the product; a whole card needs FeatureType.
_FEATURE_TYPES = {Edition.VWS: "2", Edition.VCS: "4"}


@dataclass(frozen=True)
class LinuxSetup:
    """The variables of the script; empty for what is not wanted. files: see guest_files. token: in base64."""

    source: str
    version: str
    repository: str
    key: str
    package: str
    url: str
    sha256: str
    toolkit: str
    hold_kernel: str
    feature_type: str
    token: str
    files: Sequence[GuestFile]
    mps: str


def linux_setup(cloud_init: CloudInit, request: VmRequest) -> str | None:
    """Write the script; None for a guest that needs none."""
    driver, token = request.guest_driver, cloud_init.licence_token
    if not driver.is_wanted() and token is None:
        return None
    setup = LinuxSetup(
        source=str(driver.source),
        version=driver.version or "",
        repository=signed_repository(driver),
        key=(driver.key or "").strip(),
        package=driver.package or "",
        url=driver.url or "",
        sha256=driver.sha256 or "",
        toolkit="yes" if driver.toolkit else "",
        hold_kernel="yes" if driver.hold_kernel else "",
        feature_type=feature_type(request),
        token="" if token is None else token.reveal(),
        files=guest_files(request.guest.mps) if driver.is_wanted() else (),
        mps="yes" if request.guest.mps is not None else "",
    )
    return render_template("guest-setup.sh.j2", setup=setup)


def signed_repository(driver: GuestDriver) -> str:
    """The repository, with its key named in a line for APT that names none; empty without one.

    Source: sources.list(5), the option signed-by.
    """
    repository = driver.repository or ""
    if driver.key is None or not repository.startswith("deb ") or "signed-by=" in repository:
        return repository
    rest = repository.removeprefix("deb ")
    if rest.startswith("["):
        return f"deb [signed-by={APT_KEY_PATH} {rest[1:]}"
    return f"deb [signed-by={APT_KEY_PATH}] {rest}"


def feature_type(request: VmRequest) -> str:
    """The FeatureType of gridd.conf for a guest with a whole card; empty where the type of its vGPU decides."""
    has_whole_card = any(gpu.sharing is not None for gpu in request.gpus)  # asked for without a type
    return _FEATURE_TYPES.get(request.licence, "") if has_whole_card and request.licence is not None else ""
