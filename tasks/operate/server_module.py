"""Run a module with rare garbage collection: servers start a tenth faster."""

import runpy
import sys

from ..environment import collect_seldom

if __name__ == "__main__":
    collect_seldom()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
