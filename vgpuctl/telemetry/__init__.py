# SPDX-License-Identifier: Apache-2.0
"""Telemetry: readings as Prometheus metrics, the kept history of readings, and questions to Prometheus."""
