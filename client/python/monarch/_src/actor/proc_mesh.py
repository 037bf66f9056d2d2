"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    (
        "monarch._actor.proc_mesh",
        "ProcMesh get_active_proc_meshes register_proc_mesh_spawn_callback unregister_proc_mesh_spawn_callback",
    ),
    ("monarch._actor.controller", "get_or_spawn_controller"),
    ("monarch._compat.absent", "HyProcMesh"),
)
