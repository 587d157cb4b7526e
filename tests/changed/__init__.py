# SPDX-License-Identifier: Apache-2.0
"""The tests that a change can break, nearest first (`make test-changed`)."""
