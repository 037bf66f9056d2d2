"""The checks behind ./tools/lint."""
