#include "client/cpp/ctl/events.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/cpp/ctl/daemon_channel.h"
#include "proto/monarch/v1/event.grpc.pb.h"

namespace monarch::ctl {
namespace {

// One daemon's stream: starts, reads until there is no more, and takes the status.
class Stream {
 public:
  Stream(const DaemonPlace& place, const v1::WatchRequest& request, absl::Duration timeout,
         grpc::CompletionQueue* queue)
      : place_(&place), timeout_(timeout), stub_(v1::EventService::NewStub(OpenChannel(place))) {
    if (timeout != absl::InfiniteDuration()) {
      context_.set_deadline(
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                       gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
    }
    reader_ = stub_->AsyncWatch(&context_, request, queue, this);
  }

  // What was asked for last has come (`ok`), or has not; asks for the next. Nothing more follows: false.
  bool Proceed(bool ok, absl::FunctionRef<void(const DaemonEvent&)> on_event) {
    if (step_ == Step::kFinishing) return false;
    if (step_ == Step::kReading && ok) on_event({place_, event_});
    step_ = ok ? Step::kReading : Step::kFinishing;
    if (ok) {
      reader_->Read(&event_, this);
    } else {
      reader_->Finish(&status_, this);
    }
    return true;
  }
  absl::Status status() const { return CallStatus(status_, timeout_); }

 private:
  enum class Step { kStarting, kReading, kFinishing };

  const DaemonPlace* const place_;
  const absl::Duration timeout_;
  std::unique_ptr<v1::EventService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchResponse>> reader_;
  v1::WatchResponse event_;
  grpc::Status status_;
  Step step_ = Step::kStarting;
};

// Until all of them have ended.
void Read(int open, grpc::CompletionQueue* queue, absl::FunctionRef<void(const DaemonEvent&)> on_event) {
  void* tag = nullptr;
  bool ok = false;
  while (open > 0 && queue->Next(&tag, &ok)) {
    if (!static_cast<Stream*>(tag)->Proceed(ok, on_event)) --open;
  }
}

}  // namespace

KeptEvents ReadEvents(const std::vector<DaemonPlace>& places, absl::Duration timeout) {
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Stream>> streams;
  for (const DaemonPlace& place : places) {
    streams.push_back(std::make_unique<Stream>(place, v1::WatchRequest(), timeout, &queue));
  }
  KeptEvents kept;
  Read(static_cast<int>(streams.size()), &queue,
       [&](const DaemonEvent& event) { kept.events.push_back(event); });
  for (size_t i = 0; i < places.size(); ++i) {
    Snapshot answer;
    answer.place = places[i];
    answer.answer = streams[i]->status();
    kept.answers.push_back(std::move(answer));
  }
  std::stable_sort(kept.events.begin(), kept.events.end(), [](const DaemonEvent& a, const DaemonEvent& b) {
    return a.event.unix_ms() < b.event.unix_ms();
  });
  return kept;
}

void FollowEvents(KeptEvents* kept, absl::FunctionRef<void(const DaemonEvent&)> on_event) {
  grpc::CompletionQueue queue;
  std::vector<std::pair<Snapshot*, std::unique_ptr<Stream>>> streams;
  for (Snapshot& answer : kept->answers) {
    if (!answer.answer.ok()) continue;
    v1::WatchRequest request;
    request.set_follow(true);
    for (const DaemonEvent& event : kept->events) {
      if (event.place->directory != answer.place.directory) continue;
      request.set_after(std::max<uint64_t>(request.after(), event.event.cursor()));
    }
    streams.emplace_back(&answer,
                         std::make_unique<Stream>(answer.place, request, absl::InfiniteDuration(), &queue));
  }
  Read(static_cast<int>(streams.size()), &queue, on_event);
  for (auto& [answer, stream] : streams) {
    answer->answer = stream->status();
    // A daemon that ends leaves its streams: it was followed to its end.
    if (absl::IsUnavailable(answer->answer)) answer->answer = absl::OkStatus();
  }
}

}  // namespace monarch::ctl
