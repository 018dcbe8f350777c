"""Turn off the features of the processor that make NumPy slower."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "NPY_DISABLE_CPU_FEATURES"

_CPU_BYTES = 4_000  # more than /proc/cpuinfo needs to describe one processor
_RENAMED_IN = (2, 4)  # the release of NumPy that calls AVX-512 X86_V4


def avoid_slow_sorts(cpu_info: Path = Path("/proc/cpuinfo")) -> None:
    """On AMD Zen 4, have NumPy sort with AVX2, which takes a quarter of the time of AVX-512 (x86-simd-sort issue 6).

    Call this before NumPy is imported. It has no effect if the user has set the variable, or if NumPy is not a wheel
    from PyPI: a NumPy that was compiled for this processor does not start without AVX-512.
    """
    if VARIABLE in os.environ or not _is_zen_4(cpu_info):
        return
    spec = find_spec("numpy")
    if spec is None or spec.origin is None:
        return
    for tags in Path(spec.origin).parents[1].glob("numpy-*.dist-info/WHEEL"):
        release = re.match(r"numpy-(\d+)\.(\d+)", tags.parent.name)
        if release and re.search("^Tag: .*(many|musl)linux", tags.read_text(encoding="utf-8"), re.MULTILINE):
            os.environ[VARIABLE] = "X86_V4" if (int(release[1]), int(release[2])) >= _RENAMED_IN else "AVX512F"


def _is_zen_4(cpu_info: Path) -> bool:
    try:
        with cpu_info.open(encoding="ascii", errors="replace") as file:
            first_processor = file.read(_CPU_BYTES)
    except OSError:  # not Linux
        return False
    return all(words in first_processor for words in ("AuthenticAMD", "cpu family\t: 25\n", " avx512f "))
