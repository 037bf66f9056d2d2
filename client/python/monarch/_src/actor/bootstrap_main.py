"""Alias: what a worker process runs, `python -m monarch._src.actor.bootstrap_main`."""

from __future__ import annotations

from monarch._worker import main as invoke_main

__all__ = ["invoke_main"]

if __name__ == "__main__":
    invoke_main()
