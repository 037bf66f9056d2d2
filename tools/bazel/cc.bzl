"""Macros every target of this tree uses in place of the native cc rules."""

# Warnings are errors. Catch2's and libstdc++'s headers warn falsely once gcc 12 instruments them; its -Wrestrict also
# once it optimises (assigning a literal to a std::string).
def _copts():
    return select({
        "//tools/bazel:clang": ["-Wall", "-Wextra", "-Werror", "-Wthread-safety", "-Wno-unused-command-line-argument"],
        "//tools/bazel:gcc_san": ["-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized", "-Wno-stringop-overflow", "-Wno-restrict"],
        "//conditions:default": ["-Wall", "-Wextra", "-Werror", "-Wno-restrict"],
    })

def monarch_cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = _copts() + copts, **kwargs)

# gRPC, Abseil and libstdc++ from their archives. They come before the libraries that deps name; those are then not
# needed any more, which --as-needed notices.
_PORTABLE = [
    "-static-libgcc",
    "-Wl,--gc-sections",
    "-Wl,-Bstatic",
    "-Wl,--start-group",
] + ["-l" + lib for lib in [
    "grpc++",
    "grpc",
    "gpr",
    "address_sorting",
    "re2",
    "upb",
    "cares",
    "protobuf",
    "z",
    "ssl",
    "crypto",
    "stdc++",
] + ["absl_" + part for part in [
    "bad_optional_access",
    "bad_variant_access",
    "base",
    "city",
    "civil_time",
    "cord",
    "cord_internal",
    "cordz_functions",
    "cordz_handle",
    "cordz_info",
    "debugging_internal",
    "demangle_internal",
    "exponential_biased",
    "graphcycles_internal",
    "hash",
    "hashtablez_sampler",
    "int128",
    "log_severity",
    "low_level_hash",
    "malloc_internal",
    "random_distributions",
    "random_internal_platform",
    "random_internal_pool_urbg",
    "random_internal_randen",
    "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl",
    "random_internal_randen_slow",
    "random_internal_seed_material",
    "random_seed_gen_exception",
    "random_seed_sequences",
    "raw_hash_set",
    "raw_logging_internal",
    "spinlock_wait",
    "stacktrace",
    "status",
    "statusor",
    "str_format_internal",
    "strerror",
    "strings",
    "strings_internal",
    "symbolize",
    "synchronization",
    "throw_delegate",
    "time",
    "time_zone",
]]] + [
    "-Wl,--end-group",
    "-Wl,-Bdynamic",
    "-Wl,--as-needed",
]

# Debian's archives of libunwind are not position-independent, and define the unwinding functions of libgcc, too, which
# are to be found there first.
_UNWIND = ["-no-pie", "-Wl,-Bstatic", "-Wl,--start-group"] + ["-l" + lib for lib in [
    "gcc_eh",
    "unwind-ptrace",
    "unwind-generic",
    "unwind",
    "lzma",
]] + ["-Wl,--end-group", "-Wl,-Bdynamic"]

def monarch_cc_binary(name, copts = [], linkopts = [], deps = [], portable = False, unwinds = False, **kwargs):
    """A program.

    Args:
      name: its name
      copts: more compiler flags
      linkopts: more linker flags
      deps: what it links
      portable: whether it is one file that needs libc alone when it is built optimised, because the wheel ships it
      unwinds: whether a portable one reads stacks
      **kwargs: given to cc_binary
    """
    native.cc_binary(
        name = name,
        copts = _copts() + copts,
        linkopts = linkopts + (select({
            "//tools/bazel:optimised": _PORTABLE + (_UNWIND if unwinds else ["-pie"]),
            "//conditions:default": [],
        }) if portable else []),
        deps = deps + ["//third_party:sanitizer_defaults"],
        **kwargs
    )

def monarch_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    native.cc_test(
        name = name,
        size = size,
        copts = _copts() + copts,
        deps = deps + ["//third_party:catch2_main", "//third_party:sanitizer_defaults"],
        **kwargs
    )

def monarch_cc_fuzz_test(name, srcs, deps = [], corpus = [], **kwargs):
    """A fuzz target: `LLVMFuzzerTestOneInput` in srcs.

    As a test it runs the corpus and a bounded number of seeded mutations with an own small driver, in every
    configuration; with --config=fuzz it is linked against libFuzzer.

    Args:
      name: name of the test
      srcs: the target
      deps: what it uses
      corpus: input files
      **kwargs: given to cc_test
    """
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        copts = _copts(),
        data = corpus,
        args = ["$(locations %s)" % c for c in corpus],
        linkopts = select({
            "//tools/bazel:fuzz": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + ["//third_party:sanitizer_defaults"] + select({
            "//tools/bazel:fuzz": [],
            "//conditions:default": ["//tests/fuzz:driver"],
        }),
        tags = ["fuzz"],
        **kwargs
    )

def monarch_cc_proto(name, src, deps = [], grpc = True, **kwargs):
    """C++ sources of one .proto from the system's protoc, as a cc_library.

    Args:
      name: name of the library
      src: the .proto file
      deps: other monarch_cc_proto libraries whose .proto files it imports
      grpc: whether to make service stubs too
      **kwargs: given to cc_library
    """
    stem = src[:-len(".proto")]
    outs_h = [stem + ".pb.h"] + ([stem + ".grpc.pb.h"] if grpc else [])
    outs_cc = [stem + ".pb.cc"] + ([stem + ".grpc.pb.cc"] if grpc else [])
    cmd = "protoc -I. --cpp_out=$(GENDIR)"
    if grpc:
        cmd += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.filegroup(
        name = name + "_src",
        srcs = [src] + [d + "_src" for d in deps],
        visibility = ["//visibility:public"],
    )
    native.genrule(
        name = name + "_gen",
        srcs = [":" + name + "_src"],
        outs = outs_h + outs_cc,
        # The tools are the system's, so no inputs: a new protoc asks for `bazel clean`.
        cmd = cmd + " " + native.package_name() + "/" + src,
    )
    native.cc_library(
        name = name,
        srcs = outs_cc,
        hdrs = outs_h,
        copts = ["-w"],
        deps = deps + ["//third_party:grpc++"],
        **kwargs
    )

def monarch_py_extension(name, copts = [], linkopts = [], deps = [], **kwargs):
    """<name>.so, a Python extension module. Its symbols stay inside: only PyInit_* is visible.

    Args:
      name: the module's name
      copts: more compiler flags
      linkopts: more linker flags
      deps: what it links
      **kwargs: given to cc_binary
    """
    native.cc_binary(
        name = name + ".so",
        # nanobind's headers warn, and its casters need exceptions and RTTI as they are.
        copts = _copts() + ["-fvisibility=hidden", "-Wno-error"] + copts,
        linkopts = linkopts + [
            "-Wl,--version-script=$(location //tools/bazel:py_extension.lds)",
            "-Wl,--gc-sections",
        ],
        linkshared = True,
        linkstatic = True,
        deps = deps + ["//tools/bazel:py_extension.lds"],
        **kwargs
    )
