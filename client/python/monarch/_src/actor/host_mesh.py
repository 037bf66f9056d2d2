"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._actor.host_mesh", "HostMesh hosts_from_config this_host this_proc"),
    ("monarch._actor.launch_spec", "BootstrapCommand default_bootstrap_cmd"),
    ("monarch._compat.absent", "_spawn_admin"),
)
