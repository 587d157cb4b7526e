# SPDX-License-Identifier: Apache-2.0
"""The way to a host: SSH, the agent's session, tunnels, and questions to many hosts at once."""
