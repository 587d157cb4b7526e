# SPDX-License-Identifier: Apache-2.0
"""The surroundings of every use case: services, undo, interruptions, operations, and the files of its settings."""
