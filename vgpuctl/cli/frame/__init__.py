# SPDX-License-Identifier: Apache-2.0
"""The frame of every command: its line, its section, its examples, its dry run."""
