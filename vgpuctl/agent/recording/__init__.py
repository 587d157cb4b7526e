# SPDX-License-Identifier: Apache-2.0
"""Recording of what the agent reads, so that a lab can replay the host (docs/captures.md)."""
