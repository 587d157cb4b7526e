# SPDX-License-Identifier: Apache-2.0
"""The command line: each module parses, calls one use case and prints."""
