"""The context of the code outside actors, as a thing that can be looked at."""

from __future__ import annotations

from typing import Any

from monarch._actor.context import client_context, current

_client_context = client_context
_context = current

# Flushes that are under way; ours are done when they return.
_pending_flush_tasks: set[Any] = set()
