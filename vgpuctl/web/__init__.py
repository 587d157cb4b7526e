# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: metrics for Prometheus and the read-only pages."""
