# SPDX-License-Identifier: Apache-2.0
"""What hosts answered, when, and what the store keeps of it."""
