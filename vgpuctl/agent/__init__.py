# SPDX-License-Identifier: Apache-2.0
"""The program that runs on a host: it reads facts and readings, and takes steps. Others enter by agent.wire."""
