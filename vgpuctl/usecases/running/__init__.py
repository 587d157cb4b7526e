# SPDX-License-Identifier: Apache-2.0
"""What every use case runs in: services, undo, interruptions, operations, and where its settings come from."""
