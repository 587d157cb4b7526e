# SPDX-License-Identifier: Apache-2.0
"""The files of `make release`, installed and used in clean roots of this machine's Debian, without a network.

`make test-release` runs it; it makes two roots, so it is not among the tests of every change. The tests build on one
another, in their order.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.clean_root import CleanRoot, dependencies
from vgpuctl import __version__

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
SERVICES = ("vgpuctl-controller@1", "vgpuctl-exporter", "vgpuctl-web")


@pytest.fixture(scope="module")
def package() -> Path:
    """The Debian package."""
    (found,) = DIST.glob(f"vgpuctl_{__version__}-1~deb*_*.deb")
    return found


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    """A root with the package's dependencies alone, and the package installed."""
    root = CleanRoot(tmp_path_factory.mktemp("debian") / "root", dependencies(package))
    root.does("dpkg", "--install", root.put(package))
    yield root


def test_the_checksums_and_the_sbom_belong_to_the_files() -> None:
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=DIST, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == len(list(DIST.iterdir())) - 1
    bom = json.loads((DIST / f"vgpuctl-{__version__}.cdx.json").read_text())
    assert bom["metadata"]["component"]["version"] == __version__
    listed = {(one["name"].lower().replace("_", "-"), one["version"]) for one in bom["components"]}
    built = {tuple(one.split("-")[:2]) for one in (path.name for path in (BUILD / "wheels").iterdir())}
    assert {(name.lower().replace("_", "-").replace(".", "-"), number) for name, number in built} <= {
        (name.replace(".", "-"), number) for name, number in listed
    }
    licences = (DIST / f"vgpuctl-{__version__}.licences.txt").read_text()
    assert "UNKNOWN" not in licences and "paramiko" in licences


def test_lintian_has_nothing_to_say(package: Path) -> None:
    command = ["lintian", "--allow-root", "--fail-on", "none", "--tag-display-limit", "0", str(package)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout.splitlines()
    assert said == []


def test_it_is_installed_again_without_a_change(root: CleanRoot, package: Path) -> None:
    def state() -> str:
        kept = "find /var/lib/vgpuctl /etc/vgpuctl -printf '%p %u:%g %m %s\\n'; getent passwd vgpuctl"
        return root.does("sh", "-c", kept)

    before = state()
    root.does("dpkg", "--install", root.put(package))
    assert state() == before
    assert "/var/lib/vgpuctl vgpuctl:vgpuctl 750" in before and "/etc/vgpuctl/config.yaml root:root 644" in before


def test_the_services_user_uses_it(root: CleanRoot) -> None:
    assert root.does("vgpuctl", "--version").strip().endswith(__version__)
    root.does("cp", "/usr/share/doc/vgpuctl/examples/hosts.yml", "/etc/vgpuctl/hosts.yml")
    root.does("vgpuctl", "create-tenant", "acme", user="vgpuctl")
    assert "acme" in root.does("vgpuctl", "list-tenants", user="vgpuctl")
    assert root.does("stat", "-c", "%U %a", "/var/lib/vgpuctl/store.db").split() == ["vgpuctl", "600"]
    # Every library is there, compiled, and found.
    root.does("/usr/lib/vgpuctl/bin/python3", "-c", "import grpc, libvirt, psycopg, cryptography, vgpuctl.cli.main")
    compiled = root.does("sh", "-c", "find /usr/lib/vgpuctl -path '*vgpuctl/cli/__pycache__/main.*.pyc'")
    assert compiled.count(".pyc") == 1


def test_another_user_cannot_read_the_store_and_is_told_why(root: CleanRoot) -> None:
    refused = root.run("vgpuctl", "list-tenants", user="nobody")
    assert refused.returncode != 0 and "/var/lib/vgpuctl" in refused.stderr and "Traceback" not in refused.stderr


def test_shells_complete_it(root: CleanRoot) -> None:
    script = """. /usr/share/bash-completion/completions/vgpuctl
COMP_WORDS=(vgpuctl create-ten); COMP_CWORD=1; _vgpuctl_completion vgpuctl; echo "${COMPREPLY[*]}" """
    assert root.does("bash", "-c", script).strip() == "create-tenant"
    assert root.does("head", "-1", "/usr/share/zsh/vendor-completions/_vgpuctl").strip() == "#compdef vgpuctl"


def test_its_services_run_under_systemd_and_go_on_after_an_upgrade(root: CleanRoot, package: Path) -> None:
    units = " ".join(SERVICES)
    said = root.boot(f"""
echo "all: {{hosts: {{gpu1: {{ansible_host: 127.0.0.1}}}}}}" >/etc/vgpuctl/hosts.yml
systemctl enable --now {units}
sleep 15
echo active: $(systemctl is-active {units})
echo metrics: $(python3 -c 'import urllib.request as u
print("vgpuctl_host_state" in u.urlopen("http://127.0.0.1:9635/metrics").read().decode())')
echo page: $(python3 -c 'import urllib.request as u
print("<!doctype html>" in u.urlopen("http://127.0.0.1:9636/").read().decode())')
echo controllers: $(runuser -u vgpuctl -- vgpuctl list-controllers --json)
before=$(systemctl show -P MainPID {SERVICES[0]})
dpkg --install {root.put(package)} >/dev/null
echo again: $(systemctl is-active {units})
[ "$before" = "$(systemctl show -P MainPID {SERVICES[0]})" ] || echo restarted
systemctl disable --now {units} 2>/dev/null
journalctl --no-pager -u 'vgpuctl-*' | grep -i -e traceback -e denied -e 'not permitted'
""")
    told = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    assert told.get("active") == told.get("again") == "active active active", said
    assert told.get("metrics") == told.get("page") == "True", said
    (controller,) = json.loads(told["controllers"])["controllers"]
    assert controller["state"] == "running", said
    assert "restarted" in said and "denied" not in said and "Traceback" not in said, said


def test_removal_keeps_the_store_and_purge_does_not(root: CleanRoot) -> None:
    root.does("dpkg", "--remove", "vgpuctl")
    assert root.run("vgpuctl", "--version").returncode != 0
    assert not (root.folder / "usr/lib/vgpuctl").exists()
    root.does("test", "-e", "/var/lib/vgpuctl/store.db")
    root.does("dpkg", "--purge", "vgpuctl")
    assert not (root.folder / "var/lib/vgpuctl").exists() and not (root.folder / "etc/vgpuctl").exists()


def test_the_wheels_install_without_an_index(tmp_path: Path) -> None:
    root = CleanRoot(tmp_path / "root", ["python3-venv", "libvirt0", "openssh-client"])
    wheels = sorted([*(BUILD / "wheels").iterdir(), *DIST.glob("vgpuctl-*.whl")])
    placed = [root.put(one) for one in wheels]
    assert len(placed) > 50
    root.does("python3", "-m", "venv", "/opt/vgpuctl")
    pip = ("/opt/vgpuctl/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/srv")
    root.does(*pip, "vgpuctl[all]")
    root.does("useradd", "--create-home", "ann")
    root.does("/opt/vgpuctl/bin/vgpuctl", "create-tenant", "acme", user="ann")
    assert "acme" in root.does("/opt/vgpuctl/bin/vgpuctl", "list-tenants", user="ann")
