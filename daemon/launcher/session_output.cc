#include "daemon/launcher/session_output.h"

#include <atomic>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace monarch {

SessionOutput::SessionOutput(size_t buffer_bytes_max, ScopedFd out, ScopedFd err, ScopedFd marked,
                             const Log& log)
    : out_(std::make_unique<OutputSink>("stdout", MakeFdTarget(std::move(out)), buffer_bytes_max)),
      err_(std::make_unique<OutputSink>("stderr", MakeFdTarget(std::move(err)), buffer_bytes_max)) {
  if (marked.valid()) {
    marked_ =
        std::make_unique<OutputSink>("output stream", MakeFdTarget(std::move(marked)), 4 * buffer_bytes_max);
  }
  if (log.path.empty() || log.bytes_max == 0) return;
  log_ = std::make_unique<OutputSink>("worker log", MakeLogFileTarget(log.path, log.bytes_max),
                                      buffer_bytes_max);
}

void SessionOutput::Add(OutputStream stream, const OutputSource& source, std::string lines) {
  if (log_ != nullptr) log_->Add(LabelLines(source.label, lines));
  if (marked_ != nullptr && !source.marker.empty()) {
    return marked_->Add(MarkLines(source.marker, stream, lines));
  }
  (stream == OutputStream::kStdout ? out_ : err_)->Add(std::move(lines));
}

void SessionOutput::AddEnd(const OutputSource& source) {
  if (marked_ != nullptr && !source.marker.empty()) marked_->Add(absl::StrCat(source.marker, " x \n"));
}

void SessionOutput::CloseClient() {
  client_closed_ = true;
  out_->Close();
  err_->Close();
  if (marked_ != nullptr) marked_->Close();
}

void SessionOutput::WhenIdle(absl::AnyInvocable<void()> idle) {
  std::vector<OutputSink*> sinks;
  if (!client_closed_) sinks = {out_.get(), err_.get()};
  if (!client_closed_ && marked_ != nullptr) sinks.push_back(marked_.get());
  if (log_ != nullptr) sinks.push_back(log_.get());
  if (sinks.empty()) return idle();
  const auto left = std::make_shared<std::atomic<size_t>>(sinks.size());
  const auto shared = std::make_shared<absl::AnyInvocable<void()>>(std::move(idle));
  for (OutputSink* sink : sinks) {
    sink->WhenIdle([left, shared] {
      if (left->fetch_sub(1) == 1) (*shared)();
    });
  }
}

std::string MarkLines(const std::string& marker, OutputStream stream, const std::string& lines) {
  const std::string_view complete = stream == OutputStream::kStdout ? " o " : " e ";
  const std::string_view unfinished = stream == OutputStream::kStdout ? " O " : " E ";
  std::string result;
  std::string_view rest = lines;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const bool ended = end != std::string::npos;
    result.append(marker).append(ended ? complete : unfinished).append(rest.substr(0, end)).append("\n");
    rest.remove_prefix(ended ? end + 1 : rest.size());
  }
  return result;
}

std::string LabelLines(const std::string& label, const std::string& lines) {
  std::string result;
  std::string_view rest = lines;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    result.append(label).append("| ").append(line).append("\n");
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return result;
}

}  // namespace monarch
