# SPDX-License-Identifier: Apache-2.0
"""What stands around every command: its line, its section, its examples, its questions, its rehearsal."""
