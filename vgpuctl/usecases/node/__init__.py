# SPDX-License-Identifier: Apache-2.0
"""Node pools and their nodes."""
