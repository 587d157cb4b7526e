# SPDX-License-Identifier: Apache-2.0
"""The KubeSchedulerConfiguration with which kube-scheduler calls the extender.

Source: k8s.io/kube-scheduler config/v1/types.go; kubernetes pkg/scheduler/extender.go.
"""

import math
from typing import Any
from urllib.parse import urlsplit

from vgpuctl.clusters.kubernetes.objects import GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT
from vgpuctl.errors import UsageError
from vgpuctl.model.masking import shown_url

SCHEDULER_NAME = "vgpuctl-scheduler"
_LEAST_TIMEOUT_S = 10
_API_S = 10
_WEIGHT = 100


def scheduler_config(url: str, longest_s: float) -> dict[str, Any]:
    """The configuration. url: of the extender with its prefix. longest_s: that a bind may wait.

    Every pod is sent, so that those without GPU are kept off the CPUs that GPUs need; kube-scheduler then still knows
    gpumem and gpucores as ignored by itself. Raises UsageError for a URL that cannot be used.
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isprintable() or any(one in url for one in " \"'\\"):
        raise UsageError(
            f"--print-config {shown_url(url)!a} is no URL",
            hint="write https://vgpuctl-extender.kube-system.svc:9638/v1",
        )
    is_secure = url.startswith("https:")
    extender: dict[str, Any] = {
        "urlPrefix": url.rstrip("/"),
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "weight": _WEIGHT,
        "enableHTTPS": is_secure,
        "httpTimeout": f"{max(_LEAST_TIMEOUT_S, math.ceil(longest_s) + _API_S)}s",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    if is_secure:
        extender["tlsConfig"] = {
            "insecure": False,
            "caFile": "/etc/kubernetes/vgpuctl/ca.pem",
            "certFile": "/etc/kubernetes/vgpuctl/client.pem",
            "keyFile": "/etc/kubernetes/vgpuctl/client.key",
        }
    ignored = [GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": SCHEDULER_NAME,
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ignored}}],
            }
        ],
        "extenders": [extender],
    }


def scheduler_config_yaml(config: dict[str, Any]) -> str:
    """The configuration as YAML: mappings and lists in block style, texts in double quotes."""
    return "\n".join([*_lines(config, 0), ""])


def _lines(value: dict[str, Any], depth: int) -> list[str]:
    found, indent = [], "  " * depth
    for key, one in value.items():
        if isinstance(one, dict):
            found += [f"{indent}{key}:", *_lines(one, depth + 1)]
        elif isinstance(one, list):
            found.append(f"{indent}{key}:")
            for item in one:
                inner = _lines(item, depth + 1) if isinstance(item, dict) else [f"{indent}  {_scalar(item)}"]
                found += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        else:
            found.append(f"{indent}{key}: {_scalar(one)}")
    return found


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
