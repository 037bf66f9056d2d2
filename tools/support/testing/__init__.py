"""The runner behind ./tools/test and ./tools/conformance."""
