# SPDX-License-Identifier: Apache-2.0
"""The external gRPC provider of the Kubernetes cluster-autoscaler: wire format and server."""
