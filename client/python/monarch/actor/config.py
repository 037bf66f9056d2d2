"""Settings that are read when they are needed: assign to them at any time."""

from __future__ import annotations

# Whether `logging` puts "[actor=<...>] " before what an actor, or the client, logs.
prefix_python_logs_with_actor = True
