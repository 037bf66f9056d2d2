#include "client/cpp/ctl/format_stack.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "client/cpp/ctl/table.h"

namespace monarch::ctl {
namespace {

const PythonThread* PythonOf(const ProcessStacks& process, pid_t tid) {
  for (const PythonThread& thread : process.python) {
    if (thread.tid == tid) return &thread;
  }
  return nullptr;
}

// What could not be read of it; "": nothing.
std::string ErrorOf(const ProcessStacks& process) {
  const absl::Status& status = process.native_answer.ok() ? process.python_answer : process.native_answer;
  return std::string(status.message());
}

std::string Frames(const std::vector<std::string>& frames) {
  std::string text;
  for (const std::string& frame : frames) absl::StrAppend(&text, "      ", Printable(frame), "\n");
  return text;
}

std::string FormatThread(const NativeThread& thread, const PythonThread* python) {
  const bool has_name = python != nullptr && !python->name.empty();
  std::string text =
      absl::StrCat("  thread ", thread.tid, " ", Printable(has_name ? python->name : thread.name),
                   python != nullptr && python->holds_interpreter ? ", holds the interpreter" : "", "\n");
  if (python != nullptr && !python->frames.empty())
    absl::StrAppend(&text, "    python\n", Frames(python->frames), "    native\n");
  if (thread.frames.empty())
    return absl::StrCat(text, "      it does not stop: a system call that cannot be interrupted\n");
  return absl::StrCat(text, Frames(thread.frames));
}

void AddStrings(const std::vector<std::string>& texts, google::protobuf::Value* value) {
  auto* list = value->mutable_list_value();
  for (const std::string& text : texts) list->add_values()->set_string_value(text);
}

google::protobuf::Struct ThreadRecord(const NativeThread& thread, const PythonThread* python) {
  google::protobuf::Struct record;
  auto& fields = *record.mutable_fields();
  fields["tid"].set_number_value(thread.tid);
  fields["name"].set_string_value(python != nullptr && !python->name.empty() ? python->name : thread.name);
  fields["holds_interpreter"].set_bool_value(python != nullptr && python->holds_interpreter);
  AddStrings(python == nullptr ? std::vector<std::string>() : python->frames, &fields["python"]);
  AddStrings(thread.frames, &fields["native"]);
  return record;
}

}  // namespace

std::string FormatStacks(const std::vector<ProcessStacks>& processes) {
  std::string text;
  for (const ProcessStacks& process : processes) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(process.what), " (pid ", process.pid, ")\n");
    for (const std::string& line : process.at_work)
      absl::StrAppend(&text, "  at work: ", Printable(line), "\n");
    if (const std::string error = ErrorOf(process); !error.empty())
      absl::StrAppend(&text, "  not read: ", Printable(error), "\n");
    for (const NativeThread& thread : process.native)
      absl::StrAppend(&text, FormatThread(thread, PythonOf(process, thread.tid)));
  }
  return text;
}

std::string FormatStacksJson(const std::vector<ProcessStacks>& processes) {
  google::protobuf::Struct root;
  auto* list = (*root.mutable_fields())["processes"].mutable_list_value();
  for (const ProcessStacks& process : processes) {
    auto& fields = *list->add_values()->mutable_struct_value()->mutable_fields();
    fields["process"].set_string_value(process.what);
    fields["pid"].set_number_value(static_cast<double>(process.pid));
    AddStrings(process.at_work, &fields["at_work"]);
    if (const std::string error = ErrorOf(process); !error.empty()) fields["error"].set_string_value(error);
    auto* threads = fields["threads"].mutable_list_value();
    for (const NativeThread& thread : process.native)
      *threads->add_values()->mutable_struct_value() = ThreadRecord(thread, PythonOf(process, thread.tid));
  }
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(root, &text);
  return absl::StrCat(status.ok() ? text : "{}", "\n");
}

}  // namespace monarch::ctl
