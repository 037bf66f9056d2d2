"""An aspect that writes, for each C++ target, its part of compile_commands.json."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

CompileCommandsInfo = provider(fields = ["parts"])

def _impl(target, ctx):
    parts = [d[CompileCommandsInfo].parts for d in getattr(ctx.rule.attr, "deps", []) if CompileCommandsInfo in d]
    out = []
    if CcInfo in target and hasattr(ctx.rule.files, "srcs") and not ctx.label.workspace_root:
        toolchain = find_cpp_toolchain(ctx)
        features = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features,
            unsupported_features = ctx.disabled_features,
        )
        cc = target[CcInfo].compilation_context
        entries = []
        for src in ctx.rule.files.srcs:
            if src.extension not in ["cc", "cpp", "cxx"]:
                continue
            variables = cc_common.create_compile_variables(
                feature_configuration = features,
                cc_toolchain = toolchain,
                source_file = src.path,
                user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + getattr(ctx.rule.attr, "copts", []),
                include_directories = cc.includes,
                quote_include_directories = cc.quote_includes,
                system_include_directories = cc.system_includes,
                preprocessor_defines = depset(transitive = [cc.defines, cc.local_defines]),
                use_pic = True,
            )
            args = cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            )
            entries.append(struct(
                directory = "__EXEC_ROOT__",
                file = src.path,
                arguments = [cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME)] + args,
            ))
        if entries:
            part = ctx.actions.declare_file(ctx.label.name + ".compile_commands.json")
            ctx.actions.write(part, "\n".join([e.to_json() for e in entries]) + "\n")
            out.append(part)
    all = depset(out, transitive = parts)
    return [
        CompileCommandsInfo(parts = all),
        # `headers` makes the generated .pb.h exist before a tool reads them.
        OutputGroupInfo(compile_commands = all, headers = target[CcInfo].compilation_context.headers if CcInfo in target else depset()),
    ]

compile_commands_aspect = aspect(
    implementation = _impl,
    attr_aspects = ["deps"],
    attrs = {"_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain")},
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
