# SPDX-License-Identifier: Apache-2.0
"""Services for the tenants' Kubernetes clusters."""
