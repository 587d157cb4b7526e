# SPDX-License-Identifier: Apache-2.0
"""The use cases: one file and one function for each command, above everything that reaches the world outside."""
