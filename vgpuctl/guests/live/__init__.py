# SPDX-License-Identifier: Apache-2.0
"""Changes of a domain that may run: its disks, interfaces and GPUs, and words with its guest agent."""
