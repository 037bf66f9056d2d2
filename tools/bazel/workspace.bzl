"""Repositories that Bazel 4 itself asks for, served from this tree so that no build touches a network."""

_SHIMS = [
    "bazel_skylib",
    "platforms",
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_proto",
]

def bazel_shims():
    for name in _SHIMS:
        native.local_repository(
            name = name,
            path = "tools/bazel/shims/" + name,
        )
