# SPDX-License-Identifier: Apache-2.0
"""Imports paramiko once, late and silently: it costs start-up time, warns of ciphers nobody uses and logs errors
that this room raises."""

import functools
import logging
import sys
import warnings


@functools.cache
def load_paramiko() -> None:
    """Import paramiko; after this, `import paramiko` in a function is free. Call it under no lock of your own."""
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL)
    # A third of the import is `invoke`, which paramiko does without: only its own reader of ssh_config, not used here,
    # runs `Match exec` with it.
    sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]  # None: an import of it fails
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paramiko  # noqa: F401 (imported for its effect on sys.modules)
    if sys.modules.get("invoke") is None:
        sys.modules.pop("invoke", None)
