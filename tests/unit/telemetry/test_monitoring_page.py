# SPDX-License-Identifier: Apache-2.0
"""The configurations of docs/monitoring.md are real ones."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from vgpuctl.specs.web_config import read_web_config

PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SCRAPES = [one for one in EXAMPLES if one.startswith("scrape_configs")]


@pytest.mark.parametrize("text", SCRAPES)
def test_promtool_takes_the_scrape_configurations(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_way_to_scrape_has_an_example() -> None:
    jobs = [job["job_name"] for one in SCRAPES for job in yaml.safe_load(one)["scrape_configs"]]
    assert jobs == ["vgpuctl", "vgpuctl-store", "vgpuctl-hosts", "vgpuctl-acme", "vgpuctl-acme-guests"]


@pytest.mark.parametrize("text", [one for one in EXAMPLES if one.startswith("tls_server_config")])
def test_the_web_config_is_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(text.replace("$2y$10$…", "$2y$10$" + "a" * 53), encoding="utf-8")
    assert read_web_config(file).is_protected
