# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "export dra": (
        Example("export dra", "the fleet as ResourceSlices"),
        Example("export dra gpu1 -o json", "one host, for a program"),
    ),
    "serve autoscaler": (
        Example("serve autoscaler -t acme --cluster k8s --print", "the configuration of the autoscaler"),
        Example("serve autoscaler -t acme --cluster k8s --key tls.key --cert tls.crt --client-ca ca.crt", "serve"),
    ),
    "serve extender": (
        Example("serve extender --print-config https://extender.example:9638/v1", "for kube-scheduler"),
        Example("serve extender --kubeconfig kubeconfig --insecure-listen", "serve on the loopback address"),
    ),
}
