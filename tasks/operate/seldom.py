"""Run a module as `python -m MODULE` does, in a process that looks for unreachable objects seldom.

A server makes most of its objects when it imports libraries; looking through them takes a tenth of its start.
"""

import runpy
import sys

from ..environment import collect_seldom

if __name__ == "__main__":
    collect_seldom()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
