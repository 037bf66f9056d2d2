"""Endpoints whose bodies overlap."""

from __future__ import annotations

from monarch._actor.concurrent import concurrent_endpoint

__all__ = ["concurrent_endpoint"]
