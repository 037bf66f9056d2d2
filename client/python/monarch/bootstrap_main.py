"""Old home of what a worker process runs."""

from __future__ import annotations

import warnings

from monarch._src.actor.bootstrap_main import invoke_main

__all__ = ["invoke_main"]

warnings.warn(
    "monarch.bootstrap_main is deprecated; use monarch.actor.default_bootstrap_cmd()",
    DeprecationWarning,
    stacklevel=2,
)

if __name__ == "__main__":
    invoke_main()
