# SPDX-License-Identifier: Apache-2.0
"""Every step against a folder that reacts like the kernel: done, done again, refused, interrupted."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.kernel import add_program, make, problem, take
from tests.agent.machine import ReadableTree, a40, function, mdev_types, profile_vf, vf_address
from vgpuctl.agent.host_lock import LOCK
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, SetVirtualFunctions, Step

PF = "0000:41:00.0"
AUDIO = "0000:41:00.1"
VF = vf_address(0)
UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"
VM = "11111111-2222-4333-8444-555555555555"


CARD = (
    a40(),
    function(AUDIO, device="228e", pci_class="040300", driver="snd_hda_intel"),
)
MDEV = (a40(), mdev_types(PF, available={"557": 0, "558": 24}))
PROFILE = (a40(total_vfs=1), {f"{machine.device_path(PF)}/sriov_numvfs": "1\n"}, profile_vf(0))

# (the machine, the step): what must be true of every step.
IDEMPOTENT: dict[str, tuple[tuple[ReadableTree, ...], Step]] = {
    "mdev.create": (MDEV, CreateMdev(PF, "nvidia-558", UUID)),
    "mdev.delete": ((*MDEV, machine.active_mdev(UUID, PF, "nvidia-558")), DeleteMdev(UUID)),
    "vf-profile.set": (PROFILE, SetVfProfile(VF, "558")),
    "vgpu.clear-type": ((*PROFILE, profile_vf(0, current="558")), SetVfProfile(VF, "0")),
    "driver.bind": (CARD, BindDriver((PF, AUDIO), "vfio-pci")),
}


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_a_second_run_writes_nothing_and_says_so(name: str, tmp_path: Path) -> None:
    trees, step = IDEMPOTENT[name]
    host = make(tmp_path, *trees)
    first = take(host, step)
    assert first.problem is None
    assert first.changes[0].changed
    assert first.writes > 0
    second = take(host, step)
    assert not second.changes[0].changed
    assert second.changes[0].after == first.changes[0].after
    assert second.writes == first.writes


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_a_dry_run_foresees_the_change_and_writes_nothing(name: str, tmp_path: Path) -> None:
    trees, step = IDEMPOTENT[name]
    host = make(tmp_path, *trees)
    dry = take(host, step, dry_run=True)
    assert (dry.problem, dry.writes, host.written) == (None, 0, [])
    assert take(host, step).changes == dry.changes


HELD: dict[str, tuple[tuple[ReadableTree, ...], Step]] = {
    "mdev.delete": (
        (*MDEV, machine.active_mdev(UUID, PF, "nvidia-558"), machine.holder(77, "/dev/vfio/40", vm_uuid=VM)),
        DeleteMdev(UUID),
    ),
    "vf-profile.set": (
        (*PROFILE, profile_vf(0, current="558"), machine.holder(77, "/dev/vfio/devices/vfio0", vm_uuid=VM)),
        SetVfProfile(VF, "0"),
    ),
    "driver.bind": (
        (a40(driver="vfio-pci"), machine.holder(77, "/dev/vfio/14", vm_uuid=VM)),
        BindDriver((PF,), "nvidia"),
    ),
    "function.reset": ((a40(), machine.holder(77, "/dev/vfio/14", vm_uuid=VM)), ResetFunction(PF)),
    "sriov.set": ((*PROFILE, machine.holder(77, "/dev/vfio/20", vm_uuid=VM)), SetVirtualFunctions(PF, 0)),
}


@pytest.mark.parametrize("name", HELD)
def test_a_held_device_is_refused_with_pid_and_vm(name: str, tmp_path: Path) -> None:
    trees, step = HELD[name]
    host = make(tmp_path, *trees)
    reply = take(host, step)
    assert problem(reply).code == "held"
    assert "pid 77" in problem(reply).message
    assert VM in problem(reply).message
    assert host.written == []


WRONG: dict[str, Step] = {
    "bad-address": ResetFunction("../../etc"),
    "bad-uuid": DeleteMdev("../x"),
    "bad-type": CreateMdev(PF, "../../x", UUID),
    "bad-driver": BindDriver((PF,), "../x"),
    "not-found": ResetFunction("0000:99:00.0"),
    "type-not-offered": CreateMdev(PF, "nvidia-1", UUID),
    "no-vgpu-interface": SetVfProfile(PF, "558"),
    "not-sriov": SetVirtualFunctions(PF, 4),
}


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_step_is_refused_without_a_write(code: str, tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    assert problem(take(host, WRONG[code])).code == code
    assert host.written == []


def test_a_type_id_must_be_decimal(tmp_path: Path) -> None:
    for text in ("nvidia-558", "0x22e", "", "٣", "-1"):
        assert problem(take(make(tmp_path / repr(text), *PROFILE), SetVfProfile(VF, text))).code == "bad-type"


def test_apply_stops_at_the_first_problem_and_returns_what_was_done(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    reply = take(
        host, CreateMdev(PF, "nvidia-558", UUID), CreateMdev(PF, "nvidia-1", VM), ResetFunction("0000:41:00.0")
    )
    assert [change.target for change in reply.changes] == [UUID]
    assert problem(reply).code == "type-not-offered"


# Mediated devices


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        (errno.EINVAL, "does not take it"),
        (errno.EEXIST, "already active"),
        (errno.ENODEV, "going away"),
        (errno.EUSERS, "no instance of this type left"),
        (errno.EIO, "the driver refused"),
        (errno.EACCES, "must run as root"),
    ],
)
def test_a_refused_mdev_tells_the_errno_and_its_meaning(number: int, meaning: str, tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    host.refusals["/create"] = [number]
    refused = problem(take(host, CreateMdev(PF, "nvidia-558", UUID)))
    assert (refused.code, refused.errno, refused.rm_code) == ("vgpu-refused", errno.errorcode[number], None)
    assert meaning in refused.message


def test_a_refused_mdev_tells_the_resource_managers_code(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    host.place("/dev/kmsg").write_text("6,1,2,-;NVRM: Failed to add vgpu create request: 0x38\n")
    host.refusals["/create"] = [errno.EIO]
    host.kernel_says = [
        "NVRM: Failed to add vgpu create request: 0x56",
        "nvidia-vgpu-vfio: probe failed with error -12",
    ]
    refused = problem(take(host, CreateMdev(PF, "nvidia-558", UUID)))
    assert (refused.rm_code, refused.errno) == ("0x56", "EIO")
    assert "another framebuffer size" in refused.message
    assert refused.kernel_lines == tuple(host.kernel_says)


def test_a_uuid_that_is_something_else_is_refused(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV, machine.active_mdev(UUID, PF, "nvidia-557"))
    assert problem(take(host, CreateMdev(PF, "nvidia-558", UUID))).code == "mdev-differs"


def test_a_uuid_in_capitals_is_the_same_device(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    take(host, CreateMdev(PF, "nvidia-558", UUID.upper()))
    assert not take(host, CreateMdev(PF, "nvidia-558", UUID)).changes[0].changed


def test_a_removal_waits_for_the_driver(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV, machine.active_mdev(UUID, PF, "nvidia-558"))
    host.refusals["/remove"] = [errno.EIO, errno.EAGAIN]
    host.removal_takes_waits = 3
    reply = take(host, DeleteMdev(UUID))
    assert reply.problem is None
    assert reply.changes[0].changed
    assert 2 <= host.waited_s <= 10


def test_a_device_that_the_driver_removes_itself_is_no_error(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV, machine.active_mdev(UUID, PF, "nvidia-558"))
    host.refusals["/remove"] = [errno.EAGAIN, errno.ENODEV]
    host.on_wait = lambda: host.remove_mdev(UUID)
    assert take(host, DeleteMdev(UUID)).problem is None


def test_a_removal_that_never_ends_is_given_up(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV, machine.active_mdev(UUID, PF, "nvidia-558"))
    host.removal_takes_waits = 1000
    assert problem(take(host, DeleteMdev(UUID))).code == "still-there"
    assert 30 <= host.waited_s <= 60
    assert [path for path, _ in host.written if path.endswith("/remove")] == [f"/sys/bus/mdev/devices/{UUID}/remove"]


# Vendor-specific VFIO


def test_another_type_is_taken_away_first(tmp_path: Path) -> None:
    host = make(tmp_path, *PROFILE, profile_vf(0, current="562"))
    reply = take(host, SetVfProfile(VF, "558"))
    assert (reply.changes[0].before, reply.changes[0].after) == ("562", "558")
    assert [text for path, text in host.written if path.endswith("current_vgpu_type")] == ["0", "558"]


# How NVIDIA's driver refuses after the end of a VM: the VFIO device is in use, the plugin lives, RM refuses.
LATE = [errno.EPERM] * 40 + [errno.EBUSY] * 10 + [errno.EIO] * 10
LETTING_GO: dict[str, tuple[tuple[ReadableTree, ...], Step]] = {
    "current_vgpu_type": ((*PROFILE, profile_vf(0, current="562")), SetVfProfile(VF, "0")),
    "/remove": ((*MDEV, machine.active_mdev(UUID, PF, "nvidia-558")), DeleteMdev(UUID)),
}


@pytest.mark.parametrize("end", LETTING_GO)
def test_a_driver_that_lets_go_late_is_waited_for(end: str, tmp_path: Path) -> None:
    trees, step = LETTING_GO[end]
    host = make(tmp_path, *trees)
    host.refusals[end] = list(LATE)
    reply = take(host, step)
    assert (reply.problem, reply.changes[0].changed) == (None, True)
    assert 30 <= host.waited_s <= 60


@pytest.mark.parametrize("end", LETTING_GO)
@pytest.mark.parametrize("number", [errno.EPERM, errno.EBUSY, errno.EIO])
def test_a_stuck_vgpu_is_given_up_and_root_is_not_told_to_become_root(number: int, end: str, tmp_path: Path) -> None:
    trees, step = LETTING_GO[end]
    host = make(tmp_path, *trees)
    host.refusals[end] = [number] * 1000
    refused = problem(take(host, step))
    assert (refused.code, refused.errno) == ("vgpu-refused", errno.errorcode[number])
    assert 30 <= host.waited_s <= 60
    assert "root" not in f"{refused.message} {refused.hint}"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_an_agent_without_rights_is_told_so_at_once(number: int, tmp_path: Path) -> None:
    host = make(tmp_path, *PROFILE, profile_vf(0, current="562"))
    host.has_root = number == errno.EACCES
    host.refusals["current_vgpu_type"] = [number] * 1000
    refused = problem(take(host, SetVfProfile(VF, "0")))
    assert "must run as root" in refused.message
    assert (host.waited_s, len(host.written)) == (0, 1)


def test_a_type_set_by_another_meanwhile_is_named_as_such(tmp_path: Path) -> None:
    host = make(tmp_path, *PROFILE)
    host.refusals["current_vgpu_type"] = [errno.EPERM]
    refused = problem(take(host, SetVfProfile(VF, "558")))
    assert "has a vGPU already" in refused.message
    assert "root" not in f"{refused.message} {refused.hint}"


def test_a_refused_type_tells_the_resource_managers_code(tmp_path: Path) -> None:
    host = make(tmp_path, *PROFILE, profile_vf(0, types=("562",)))
    host.kernel_says = ["NVRM: Failed to add vgpu create request: 0x1A"]
    refused = problem(take(host, SetVfProfile(VF, "558")))
    assert (refused.code, refused.rm_code) == ("vgpu-refused", "0x1a")
    dry = problem(take(host, SetVfProfile(VF, "558"), dry_run=True))
    assert dry.code == "type-not-creatable"
    assert "562" in dry.message


# Drivers


def test_functions_go_to_vfio_and_back_to_what_the_kernel_picks(tmp_path: Path) -> None:
    host = make(tmp_path, *CARD)
    host.native = {PF: "nvidia", AUDIO: "snd_hda_intel"}
    [change] = take(host, BindDriver((PF, AUDIO), "vfio-pci")).changes
    assert change.before == f"{PF}=nvidia {AUDIO}=snd_hda_intel"
    assert (host.driver(PF), host.driver(AUDIO)) == ("vfio-pci", "vfio-pci")
    take(host, BindDriver((PF, AUDIO), None))
    assert (host.driver(PF), host.driver(AUDIO)) == ("nvidia", "snd_hda_intel")
    assert host.read(f"/sys/bus/pci/devices/{PF}/driver_override") == "(null)"
    writes = host.writes
    assert not take(host, BindDriver((PF, AUDIO), None)).changes[0].changed
    assert host.writes == writes


def test_giving_back_by_name_leaves_no_override(tmp_path: Path) -> None:
    host = make(tmp_path, *CARD)
    take(host, BindDriver((PF,), "vfio-pci"))
    take(host, BindDriver((PF,), "nvidia"))
    assert host.driver(PF) == "nvidia"
    assert host.read(f"/sys/bus/pci/devices/{PF}/driver_override") == "(null)"


def test_when_one_function_does_not_bind_all_go_back(tmp_path: Path) -> None:
    host = make(tmp_path, *CARD)
    host.native = {PF: "nvidia", AUDIO: "snd_hda_intel"}
    original = host.bind

    def refuse_audio(address: str, driver: str | None) -> None:
        if (address, driver) != (AUDIO, "vfio-pci"):
            original(address, driver)

    host.bind = refuse_audio  # type: ignore[method-assign]
    refused = problem(take(host, BindDriver((PF, AUDIO), "vfio-pci")))
    assert refused.code == "driver-did-not-bind"
    assert f"{PF}=nvidia {AUDIO}=snd_hda_intel" in refused.message
    assert (host.driver(PF), host.driver(AUDIO)) == ("nvidia", "snd_hda_intel")


def test_a_missing_driver_is_named_after_modprobe_failed(tmp_path: Path) -> None:
    host = make(tmp_path, *CARD)
    add_program(host, "/usr/sbin/modprobe", "import sys\nsys.exit('FATAL: Module nope not found.')")
    refused = problem(take(host, BindDriver((PF,), "nope")))
    assert refused.code == "driver-missing"
    assert "Module nope not found" in refused.message


def test_a_card_whose_node_is_open_keeps_its_driver(tmp_path: Path) -> None:
    host = make(tmp_path, *CARD, machine.holder(8, "/dev/nvidia0", command="/usr/bin/nv-hostengine"))
    refused = problem(take(host, BindDriver((PF,), "vfio-pci")))
    assert refused.code == "held"
    assert "nv-hostengine, pid 8" in refused.message


def test_a_card_with_vfs_or_mdevs_keeps_its_driver(tmp_path: Path) -> None:
    host = make(tmp_path / "vfs", *PROFILE)
    assert problem(take(host, BindDriver((PF,), "vfio-pci"))).code == "vfs-active"
    assert problem(take(host, ResetFunction(PF))).code == "vfs-active"
    host = make(tmp_path / "mdevs", *MDEV, machine.active_mdev(UUID, PF, "nvidia-558"))
    assert problem(take(host, BindDriver((PF,), "vfio-pci"))).code == "mdevs-active"
    assert problem(take(host, ResetFunction(PF))).code == "mdevs-active"


# Reset


DEVICE = f"/sys/bus/pci/devices/{PF}"


@pytest.mark.parametrize(
    ("known", "taken"),
    [("flr bus", "flr"), ("pm bus", "bus"), ("device_specific flr", "device_specific")],
)
def test_a_reset_takes_the_fullest_method_and_leaves_the_kernels_list(known: str, taken: str, tmp_path: Path) -> None:
    host = make(tmp_path, a40(), {f"{machine.device_path(PF)}/reset_method": f"{known}\n"})
    [change] = take(host, ResetFunction(PF)).changes
    assert change.after == taken
    assert host.written == [
        (f"{DEVICE}/reset_method", taken),
        (f"{DEVICE}/reset", "1"),
        (f"{DEVICE}/reset_method", known),
    ]


def test_the_only_method_needs_no_choice(tmp_path: Path) -> None:
    host = make(tmp_path, a40(), {f"{machine.device_path(PF)}/reset_method": "pm\n"})
    assert take(host, ResetFunction(PF)).changes[0].after == "pm"
    assert host.written == [(f"{DEVICE}/reset", "1")]


def test_the_list_that_a_killed_reset_left_is_written_back_by_the_next(tmp_path: Path) -> None:
    host = make(tmp_path, a40())

    class Killed(BaseException):
        pass

    def killed(path: str, text: str) -> None:
        raise Killed(path)

    writes, host.write = host.write, killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        take(host, ResetFunction(PF))
    host.place(f"{DEVICE}/reset_method").write_text("bus\n")
    host.write = writes  # type: ignore[method-assign]

    assert take(host, ResetFunction(PF)).changes[0].after == "flr", "what the kernel knew before the killed reset"
    assert host.written[-1] == (f"{DEVICE}/reset_method", "flr bus")
    assert not host.place(f"/run/vgpuctl/reset-methods/{PF}").exists()


def test_a_method_that_fails_is_followed_by_the_next(tmp_path: Path) -> None:
    host = make(tmp_path, a40())
    host.refusals["/reset"] = [errno.ENOTTY]
    assert take(host, ResetFunction(PF)).changes[0].after == "bus"
    assert host.written[-1] == (f"{DEVICE}/reset_method", "flr bus")


def test_a_function_that_no_method_resets_is_refused_with_the_kernels_lines(tmp_path: Path) -> None:
    host = make(tmp_path, a40())
    host.refusals["/reset"] = [errno.ENOTTY, errno.EIO]
    host.kernel_says = ["vfio-pci 0000:41:00.0: not ready 65535ms after FLR; giving up"]
    refused = problem(take(host, ResetFunction(PF)))
    assert (refused.code, refused.errno) == ("reset-refused", "EIO")
    assert "was not reset by any of flr, bus" in refused.message
    assert refused.kernel_lines == tuple(host.kernel_says) * 2
    assert host.written[-1] == (f"{DEVICE}/reset_method", "flr bus")


def test_an_old_kernel_chooses_the_method_and_does_not_name_it(tmp_path: Path) -> None:
    tree = a40()
    del tree[f"{machine.device_path(PF)}/reset_method"]
    host = make(tmp_path, tree)
    assert take(host, ResetFunction(PF)).changes[0].after == "reset"
    assert host.written == [(f"{DEVICE}/reset", "1")]


def test_a_card_without_reset_is_refused(tmp_path: Path) -> None:
    assert problem(take(make(tmp_path, function(PF)), ResetFunction(PF))).code == "no-reset"


# The lock


def test_a_second_agent_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    host = make(tmp_path, *MDEV)
    program = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write(str(os.getpid()))\nfile.flush()\nprint('held', flush=True)\nsys.stdin.read()"
    )
    path = host.place(LOCK)
    path.parent.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Problem) as caught, host.lock(0):
            raise AssertionError("the lock was given twice")
        assert caught.value.code == "host-locked"
        assert f"pid {other.pid}" in caught.value.message
        assert other.stdin is not None
        other.stdin.close()
        other.wait(10)
    assert take(host, CreateMdev(PF, "nvidia-558", UUID)).problem is None
