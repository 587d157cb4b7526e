# SPDX-License-Identifier: Apache-2.0
"""The front of everything that listens: sockets, the rules of a request, connections, wrong logins, counts.

No module outside of it makes a listening socket (tests/unit/test_library_gates.py), and every server that speaks HTTP
asks it about each request before anything else reads it.
"""
