#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/ctl/format.h"

namespace monarch::ctl {
namespace {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : "null";  // null: text in it is not UTF-8
}

std::string Quoted(const std::string& text) {
  google::protobuf::StringValue value;
  value.set_value(text);
  return ToJson(value);
}

}  // namespace

std::string FormatJson(const std::vector<Snapshot>& snapshots, JsonPart part) {
  std::vector<std::string> daemons;
  for (const Snapshot& snapshot : snapshots) {
    std::string text = absl::StrCat("{\"address\":", Quoted(snapshot.place.Address()),
                                    ",\"answered\":", snapshot.answer.ok() ? "true" : "false");
    if (snapshot.ended) {
      text = absl::StrCat("{\"address\":", Quoted(snapshot.place.Address()),
                          ",\"answered\":false,\"ended\":true,\"failures\":", ToJson(snapshot.failures));
    } else if (!snapshot.answer.ok()) {
      absl::StrAppend(&text, ",\"code\":", Quoted(absl::StatusCodeToString(snapshot.answer.code())),
                      ",\"error\":", Quoted(std::string(snapshot.answer.message())));
    } else {
      absl::StrAppend(&text, ",\"status\":", ToJson(snapshot.status));
      if (part == JsonPart::kTree) absl::StrAppend(&text, ",\"tree\":", ToJson(snapshot.tree));
      if (part == JsonPart::kFailures) absl::StrAppend(&text, ",\"failures\":", ToJson(snapshot.failures));
    }
    daemons.push_back(absl::StrCat(text, "}"));
  }
  return absl::StrCat("{\"daemons\":[", absl::StrJoin(daemons, ","), "]}\n");
}

std::string FormatStoppedJson(const Snapshot& daemon, const v1::SessionInfo& session,
                              const v1::StopSessionResponse& stopped) {
  return absl::StrCat("{\"address\":", Quoted(daemon.place.Address()),
                      ",\"session\":", Quoted(session.session()), ",\"stopped\":", ToJson(stopped), "}\n");
}

std::string FormatEventJson(const DaemonPlace& place, const v1::WatchResponse& event) {
  return absl::StrCat("{\"address\":", Quoted(place.Address()), ",\"event\":", ToJson(event), "}\n");
}

}  // namespace monarch::ctl
