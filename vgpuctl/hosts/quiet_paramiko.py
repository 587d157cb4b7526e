# SPDX-License-Identifier: Apache-2.0
"""Imports paramiko once, late and silently: it costs start-up time, warns of ciphers nobody uses and logs errors
that this room raises."""

import functools
import logging
import warnings


@functools.cache
def load_paramiko() -> None:
    """Import paramiko; after this, `import paramiko` in a function is free. Call it under no lock of your own."""
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paramiko  # noqa: F401 (imported for its effect on sys.modules)
