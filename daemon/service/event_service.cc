#include "daemon/service/event_service.h"

#include <deque>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "daemon/service/process_conversion.h"
#include "proto/failure_event_conversion.h"
#include "proto/status_conversion.h"

namespace monarch {
namespace {

constexpr size_t kBatchMax = 64;

using Batch = std::deque<v1::WatchResponse>;
class WatchStream;

v1::WatchResponse EntryToProto(const EventLog::Entry& entry) {
  v1::WatchResponse out;
  out.set_cursor(entry.cursor);
  out.set_session(entry.session);
  out.set_what(entry.what);
  out.set_reason(entry.reason);
  out.set_unix_ms(entry.unix_ms);
  if (entry.failure) *out.mutable_failure() = ToProto(*entry.failure);
  if (entry.hang) *out.mutable_hang() = HangToProto(entry);
  return out;
}

// A stream's place in the log. Whoever is to act next holds it: a posted task, the log's subscription, or the
// stream while it writes. When nobody does, because the daemon stops, its destructor ends the stream.
// Threading: confined to the control loop; destroyed anywhere.
class WatchCursor : public std::enable_shared_from_this<WatchCursor> {
 public:
  WatchCursor(DaemonContext* context, WatchStream* stream, uint64_t after, bool follow)
      : context_(context), stream_(stream), after_(after), follow_(follow) {}
  ~WatchCursor();
  void Pump();
  DaemonContext* context() const { return context_; }

 private:
  DaemonContext* const context_;
  WatchStream* const stream_;  // lives until it is finished, which only this does
  uint64_t after_;
  const bool follow_;
  uint64_t subscription_ = 0;
};

// Threading: guarded by mu_.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchResponse> {
 public:
  void Start(DaemonContext* context, uint64_t after, bool follow) {
    auto cursor = std::make_shared<WatchCursor>(context, this, after, follow);
    {
      MutexLock lock(mu_);
      cursor_ = cursor;
    }
    context->loop->Post([cursor] { cursor->Pump(); });
  }
  // Not empty; no other write is under way. The cursor comes back to the loop when all is written.
  void Write(Batch batch, std::shared_ptr<WatchCursor> cursor) {
    MutexLock lock(mu_);
    batch_ = std::move(batch);
    writing_ = std::move(cursor);
    WriteNext();
  }
  bool writing() const {
    MutexLock lock(mu_);
    return writing_ != nullptr;
  }
  bool cancelled() const {
    MutexLock lock(mu_);
    return cancelled_;
  }

  void OnWriteDone(bool ok) override {
    std::shared_ptr<WatchCursor> cursor;
    {
      MutexLock lock(mu_);
      cancelled_ = cancelled_ || !ok;
      if (!cancelled_ && !batch_.empty()) return WriteNext();
      cursor = std::exchange(writing_, nullptr);
    }
    PostPump(std::move(cursor));
  }
  void OnCancel() override {
    std::shared_ptr<WatchCursor> cursor;
    {
      MutexLock lock(mu_);
      cancelled_ = true;
      cursor = cursor_.lock();
    }
    if (cursor) PostPump(std::move(cursor));
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    current_ = std::move(batch_.front());
    batch_.pop_front();
    StartWrite(&current_);
  }
  static void PostPump(std::shared_ptr<WatchCursor> cursor) {
    EventLoop* loop = cursor->context()->loop;
    loop->Post([cursor = std::move(cursor)] { cursor->Pump(); });
  }

  mutable Mutex mu_;
  std::weak_ptr<WatchCursor> cursor_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<WatchCursor> writing_ ABSL_GUARDED_BY(mu_);
  Batch batch_ ABSL_GUARDED_BY(mu_);
  v1::WatchResponse current_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

WatchCursor::~WatchCursor() { stream_->Finish(grpc::Status::OK); }

void WatchCursor::Pump() {
  if (stream_->writing()) return;
  const std::shared_ptr<WatchCursor> self = shared_from_this();
  EventLog::Batch read;
  if (!stream_->cancelled()) read = context_->events->Read(after_, kBatchMax);
  if (read.entries.empty()) {
    const bool go_on = follow_ && !stream_->cancelled();
    if (go_on && subscription_ == 0) {
      subscription_ =
          context_->events->Subscribe([self] { self->context_->loop->Post([self] { self->Pump(); }); });
    } else if (!go_on && subscription_ != 0) {
      context_->events->Unsubscribe(std::exchange(subscription_, 0));
    }
    return;
  }
  after_ = read.entries.back().cursor;
  Batch batch;
  for (const EventLog::Entry& entry : read.entries) batch.push_back(EntryToProto(entry));
  batch.front().set_missed(read.missed);
  stream_->Write(std::move(batch), self);
}

}  // namespace

grpc::ServerWriteReactor<v1::WatchResponse>* EventService::Watch(grpc::CallbackServerContext*,
                                                                 const v1::WatchRequest* request) {
  auto* stream = new WatchStream();
  stream->Start(context_, request->after(), request->follow());
  return stream;
}

}  // namespace monarch
