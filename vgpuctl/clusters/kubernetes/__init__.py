# SPDX-License-Identifier: Apache-2.0
"""Kubernetes: its API server, with a kubeconfig of the tenant."""
