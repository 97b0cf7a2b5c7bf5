"""Free memory."""

from __future__ import annotations

import psutil
from distributed.system import MEMORY_LIMIT


def free_memory() -> int:
    """Return the free bytes of machine or container."""
    used = psutil.Process().memory_info().rss
    return int(max(0, min(psutil.virtual_memory().available, MEMORY_LIMIT - used)))
