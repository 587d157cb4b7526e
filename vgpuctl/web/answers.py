# SPDX-License-Identifier: Apache-2.0
"""The kinds of answers of the HTTP interfaces."""

import json

from flask import Response


def as_text(text: str, status: int = 200) -> Response:
    """Return plain text."""
    return Response(text, status, content_type="text/plain; charset=utf-8")


def as_page(text: str, status: int = 200) -> Response:
    """Return HTML that loads nothing."""
    response = Response(text, status, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = "default-src 'none'"
    return response


def as_json(value: object) -> Response:
    """Return JSON as http_sd wants it: its Content-Type without parameters."""
    return Response(json.dumps(value), content_type="application/json")
