# SPDX-License-Identifier: Apache-2.0
"""The external gRPC provider of the Kubernetes cluster-autoscaler: wire format and server."""

import os

# Before gRPC is imported: it starts its threads again in every child that is forked, as libvirt forks its transports,
# and they write into what the child has open.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
