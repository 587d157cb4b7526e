# SPDX-License-Identifier: Apache-2.0
"""The parts of private files that a recording keeps: what the agent looks at, nothing else leaves the host.

A log, a command line and the definition of a VM have much that is nobody's business.
"""

import json
import re
from typing import Callable, List, Optional, Sequence, Tuple
from xml.etree import ElementTree

from vgpuctl.agent.kernel_files import unpacked
from vgpuctl.agent.kernel_lines import read_xid
from vgpuctl.agent.wire.diagnostics import LOG_PATTERNS
from vgpuctl.agent.wire.pki import MARK

_UUID_OPTIONS = ("-uuid", "--uuid")
# The pattern of a fault, and that of the line that ends it.
_PATTERNS = tuple(
    re.compile(text, re.IGNORECASE) for one in LOG_PATTERNS for text in (one.pattern, one.ended_by) if text is not None
)
_KERNEL_WORDS = re.compile(
    r"NVRM|nvidia|amdgpu|\b(?:gim|xe|i915)\b|vgpu|vfio|mdev|iommu|DMAR|AMD-Vi|SR-IOV", re.IGNORECASE
)
_QEMU_START = re.compile(r"^\d{4}-\d\d-\d\d \S+: starting up libvirt version: ")
# Parameters of the kernel's command line whose values are safe to show.
_PUBLIC_PARAMETERS = re.compile(
    r"(?:(?:intel_|amd_)?iommu|vfio|vfio_pci|vfio-pci|kvm|kvm_intel|kvm_amd|nvidia|nouveau|nouveau\.modeset|i915|xe|pci"
    r"|pcie_\w+|modprobe\.blacklist|rd\.driver\.\w+|module_blacklist|hugepages|hugepagesz|default_hugepagesz|console"
    r"|isolcpus|nohz_full|rcu_nocbs|mitigations|selinux|apparmor|security|mem|memmap|rdt|video|efi)(?:\.\w+)?"
)
_PROGRAM_NAME = re.compile(r"name=[^,\s]+")
_COMMAND_LINE = "ommand line: "
_NODES = ("/dev/vfio", "/dev/nvidia", "/dev/dri/", "/dev/snd/", "/dev/kfd")
_HIDDEN = "hidden"
_SERVICE_WORDS = 4


def keep_of_file(path: str, text: str) -> str:
    """Return the part of a file's text that is recorded."""
    for pattern, keep in _RULES:
        if pattern.fullmatch(path):
            return keep(text)
    return text


def keep_of_head(path: str, data: bytes) -> bytes:
    """Return the part of a file's first bytes that is recorded: of the kernel's configuration, what the agent asks."""
    if _CERTIFICATE.fullmatch(path):
        return MARK.encode() if data.startswith(MARK.encode()) else b""  # it names the host
    return _KERNEL_OPTIONS(unpacked(data)).encode() if _KERNEL_CONFIG.fullmatch(path) else data


def keep_of_program(argv: Sequence[str], output: str) -> str:
    """Return the part of a program's output that is recorded."""
    name = argv[0].rpartition("/")[2]
    if name == "journalctl":
        return _keep_of_journal(output)
    if name == "systemctl" and argv[1:2] == ["list-units"]:
        # The last column is a description in anybody's words.
        lines = (line.split() for line in output.splitlines())
        return "\n".join(" ".join(words[: _SERVICE_WORDS + (words[0] in "●*×")]) for words in lines if words)
    return output


def keep_of_links(links: Sequence[Tuple[int, str]]) -> List[Tuple[int, str]]:
    """Return the open files that are nodes of devices."""
    return [(pid, target) for pid, target in links if target.startswith(_NODES)]


def is_wanted_line(line: str) -> bool:
    """True for a line of the kernel's log that the agent can find something in."""
    return read_xid(line) is not None or any(pattern.search(line) for pattern in (_KERNEL_WORDS, *_PATTERNS))


def keep_of_kernel_line(line: str) -> str:
    """Return a line of the kernel's log without the program that an Xid quotes and the values of private parameters."""
    head, mark, parameters = line.partition(_COMMAND_LINE)
    if mark:
        return head + mark + _keep_of_boot_line(parameters)
    return _PROGRAM_NAME.sub(f"name={_HIDDEN}", line)


def _keep_of_command_line(text: str) -> str:
    """Return a process's program and the UUID of its VM."""
    words = text.split("\0")
    kept: Tuple[str, ...] = (words[0].rpartition("/")[2],)
    for option, value in zip(words, words[1:]):
        if option in _UUID_OPTIONS:
            kept = (*kept, option, value)
    return "\0".join(kept)


def _keep_of_boot_line(text: str) -> str:
    """Return the kernel's parameters, without the values that name something of this host."""
    kept = []
    for word in text.split():
        name, equals, _value = word.partition("=")
        is_public = not equals or _PUBLIC_PARAMETERS.fullmatch(name)
        kept.append(word if is_public else f"{name}={_HIDDEN}")
    return " ".join(kept)


def _keep_of_lines(pattern: str) -> Callable[[str], str]:
    """Return what keeps the lines that have an expression."""
    wanted = re.compile(pattern)
    return lambda text: "\n".join(line for line in text.splitlines() if wanted.search(line))


def _keep_of_vgpu_config(text: str) -> str:
    """Return the identifiers and sizes of NVIDIA's list of vGPU types; the rest of its file is NVIDIA's."""
    try:
        root = ElementTree.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    except ElementTree.ParseError:
        return "<"
    made = ElementTree.Element("vgpuconfig")
    for one in root.iter("vgpuType"):
        kept = ElementTree.SubElement(made, "vgpuType", {key: one.get(key, "") for key in ("id", "name")})
        ElementTree.SubElement(kept, "profileSize").text = one.findtext("profileSize")
    for one in root.iter("pgpu"):
        kept, identity = ElementTree.SubElement(made, "pgpu"), one.find("devId")
        if identity is not None:
            ElementTree.SubElement(kept, "devId", dict(identity.attrib))
        for supported in one.iter("supportedVgpu"):
            each = ElementTree.SubElement(kept, "supportedVgpu", {"vgpuId": supported.get("vgpuId", "")})
            ElementTree.SubElement(each, "maxVgpus").text = supported.findtext("maxVgpus")
    return ElementTree.tostring(made, encoding="unicode")


def _keep_of_script(text: str) -> str:
    """Return the list of boards in NVIDIA's script; its other text is NVIDIA's."""
    found = re.search(r"^\s*SRIOV_ENABLED_GPUS=[(\"' ]*[0-9A-Fa-f: \t\n]*", text, re.MULTILINE)
    return found[0] if found else ""


def _keep_of_modules(text: str) -> str:
    """Return the lines of a list of modules that name one of NVIDIA's or of Open vSwitch's."""
    names = ("nvidia", "openvswitch", "geneve", "vxlan", "vfio", "mdev")
    return "\n".join(line.partition(":")[0] + ":" for line in text.splitlines() if any(name in line for name in names))


def _keep_of_log(text: str) -> str:
    """Return the lines that a check looks for, and the starts of a VM."""
    return "\n".join(
        "1970-01-01 00:00:00.000+0000: starting up libvirt version: hidden" if _QEMU_START.match(line) else line
        for line in text.splitlines()
        if _QEMU_START.match(line) or any(pattern.search(line) for pattern in _PATTERNS)
    )


def _keep_of_journal(output: str) -> str:
    kept = []
    for line in output.splitlines():
        try:
            message = json.loads(line)["MESSAGE"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(message, str) and any(pattern.search(message) for pattern in _PATTERNS):
            kept.append(json.dumps({"MESSAGE": message}))
    return "\n".join(kept)


def _keep_of_domain(text: str) -> str:
    """Return a VM's name, UUID, huge pages, PCI functions and tenant; a damaged definition stays damaged."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError):
        return "<"
    domain = root if root.tag == "domain" else root.find("domain")
    if domain is None:
        return "<other/>"
    made = ElementTree.Element("domain")
    for name in ("name", "uuid"):
        ElementTree.SubElement(made, name).text = domain.findtext(name)
    for vm in domain.iterfind("metadata/*"):
        if vm.tag.endswith("}vm") and vm.get("tenant"):
            ElementTree.SubElement(ElementTree.SubElement(made, "metadata"), vm.tag, {"tenant": vm.get("tenant", "")})
    for pages in domain.iterfind("memoryBacking/hugepages"):
        ElementTree.SubElement(made, "memoryBacking").append(pages)
    devices = ElementTree.SubElement(made, "devices")
    devices.extend(_copy_of_device(one) for one in domain.iterfind("devices/hostdev[@type='pci']"))
    if root is not domain:
        whole = ElementTree.Element("domstatus", {"pid": root.get("pid", "")})
        whole.append(made)
        made = whole
    return ElementTree.tostring(made, encoding="unicode")


def _keep_of_pool(text: str) -> str:
    """Return a storage pool's name, kind and folder."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError):
        return "<"
    pool = root if root.tag == "pool" else root.find(".//pool")
    if pool is None:
        return "<other/>"
    made = ElementTree.Element("pool", {"type": pool.get("type", "")})
    ElementTree.SubElement(made, "name").text = pool.findtext("name")
    ElementTree.SubElement(ElementTree.SubElement(made, "target"), "path").text = pool.findtext("target/path")
    return ElementTree.tostring(made, encoding="unicode")


def _copy_of_device(device: ElementTree.Element) -> ElementTree.Element:
    made = ElementTree.Element("hostdev", {"type": "pci"})
    source = device.find("source/address")
    if source is not None:
        ElementTree.SubElement(made, "source").append(_copy_of_address(source))
    guest: Optional[ElementTree.Element] = device.find("address")
    if guest is not None:
        made.append(_copy_of_address(guest))
    return made


def _copy_of_address(address: ElementTree.Element) -> ElementTree.Element:
    parts = ("type", "domain", "bus", "slot", "function")
    return ElementTree.Element("address", {name: address.get(name, "") for name in parts if address.get(name)})


_KERNEL_CONFIG = re.compile(r"/boot/config-.*|/lib/modules/[^/]+/config|/proc/config\.gz")
_CERTIFICATE = re.compile(r".*/(?:ca|server|client)-cert\.pem")
_KERNEL_OPTIONS = _keep_of_lines(r"^CONFIG_(?:VFIO|IOMMUFD_DRIVER)=")
_RULES: Tuple[Tuple["re.Pattern[str]", Callable[[str], str]], ...] = (
    (re.compile(r"/proc/\d+/cmdline"), _keep_of_command_line),
    (re.compile(r"/proc/cmdline"), _keep_of_boot_line),
    (re.compile(r"/proc/mounts"), _keep_of_lines(r" (?:hugetlbfs|tmpfs|ramfs) ")),
    (re.compile(r"/proc/stat"), _keep_of_lines(r"^(?:cpu|btime) ")),
    (re.compile(r"/proc/cpuinfo"), lambda text: text.partition("\n\n")[0]),
    (re.compile(r"/etc/(?:sysconfig|default)/libvirt-guests"), _keep_of_lines(r"^\s*ON_SHUTDOWN=")),
    (re.compile(r"/usr/lib(?:exec)?/(?:libvirt/)?libvirt-guests\.sh"), _keep_of_lines(r"^\s*ON_SHUTDOWN=")),
    (re.compile(r"/etc/libvirt/qemu\.conf"), _keep_of_lines(r"^\s*(?:user|\w+_tls_x509_cert_dir)\s*=")),
    (re.compile(r"/usr/lib/nvidia/sriov-manage"), _keep_of_script),
    (re.compile(r"/usr/share/nvidia/vgpu/vgpuConfig\.xml"), _keep_of_vgpu_config),
    (re.compile(r"/lib/modules/[^/]+/modules\.\w+"), _keep_of_modules),
    (re.compile(r"/(?:run|etc)/libvirt/qemu/.*"), _keep_of_domain),
    (re.compile(r"/(?:run|etc)/libvirt/storage/.*"), _keep_of_pool),
    (re.compile(r"/var/log/.*"), _keep_of_log),
)
