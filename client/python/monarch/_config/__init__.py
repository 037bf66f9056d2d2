"""The configuration: its keys as data, the layers of their values."""
