"""Use the hsimhash-native package if it is installed: the same results in a fraction of the time.

`HSIMHASH_NATIVE=0` turns it off. Everything works without it.
"""

from __future__ import annotations

import os
from typing import Any

try:
    import hsimhash_native
except ImportError:
    hsimhash_native = None

SWITCH = "HSIMHASH_NATIVE"
_INTERFACE = 7  # version of the package's interface: arguments and results of its functions


def native_package() -> Any:
    """Return the package, or None if it is not installed, is not compatible with this release, or is turned off."""
    return hsimhash_native if os.environ.get(SWITCH) != "0" and _is_usable() else None


def signer_name() -> str:
    """Return what signs texts: the package with its version, or numpy with the reason."""
    if hsimhash_native is None:
        return "numpy"
    name = f"hsimhash-native {hsimhash_native.__version__}"
    if not _is_usable():
        return f"numpy ({name} is not compatible with this release; reinstall it)"
    return name if native_package() else f"numpy ({name} is turned off by {SWITCH}=0)"


def _is_usable() -> bool:
    return getattr(hsimhash_native, "INTERFACE", None) == _INTERFACE
