"""Repositories found through one Python interpreter: its headers, and packages installed for it."""

def _python_bin(ctx):
    path = ctx.os.environ.get("MONARCH_PYTHON") or ctx.which("python3")
    if not path:
        fail("no python3 on PATH and MONARCH_PYTHON is not set")
    return str(path)

def _query(ctx, python, code):
    result = ctx.execute([python, "-c", code])
    return result.stdout.strip() if result.return_code == 0 else ""

def _local_python_impl(ctx):
    python = _query(ctx, _python_bin(ctx), "import sys; print(sys.executable)")
    include = _query(ctx, python, "import sysconfig; print(sysconfig.get_paths()['include'])")
    suffix = _query(ctx, python, "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
    if ctx.path(include).exists:
        ctx.symlink(include, "include")
    ctx.file("info.bzl", "PYTHON = %r\nEXT_SUFFIX = %r\n" % (python, suffix))
    ctx.file("BUILD.bazel", """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
)
py_runtime(
    name = "py3",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)
py_runtime_pair(name = "pair", py3_runtime = ":py3")
toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
""".format(python = python))

local_python = repository_rule(
    implementation = _local_python_impl,
    environ = ["MONARCH_PYTHON", "PATH"],
    configure = True,
    local = True,
)

def _package_impl(ctx):
    folder = ctx.os.environ.get(ctx.attr.env) or _query(
        ctx,
        _python_bin(ctx),
        "import importlib.util as u; print(u.find_spec('%s').submodule_search_locations[0])" % ctx.attr.package,
    )
    if not folder or not ctx.path(folder).exists:
        ctx.file("BUILD.bazel", "")
        ctx.file("info.bzl", "FOUND = False\nFOLDER = ''\n")
        return
    for entry in ctx.attr.link:
        ctx.symlink(folder + "/" + entry, entry)
    ctx.file("info.bzl", "FOUND = True\nFOLDER = %r\n" % folder)
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

python_package = repository_rule(
    implementation = _package_impl,
    attrs = {
        "package": attr.string(mandatory = True),
        "env": attr.string(mandatory = True),
        "link": attr.string_list(),
        "build_file": attr.label(mandatory = True),
    },
    environ = ["MONARCH_PYTHON", "PATH", "NANOBIND_DIR"],
    configure = True,
    local = True,
)
