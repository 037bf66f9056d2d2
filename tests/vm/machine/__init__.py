"""Boots a guest that has this host's files and a systemd of its own (see ../README.md)."""
