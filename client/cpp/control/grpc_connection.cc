#include "client/cpp/control/grpc_connection.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <signal.h>

#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace monarch {
namespace {

// The threads that gRPC starts inherit the mask of whoever makes it start them: signals are for the program's
// own.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

GrpcConnection::GrpcConnection(OpenFd open_fd, absl::Duration idle)
    : open_fd_(std::move(open_fd)), idle_(idle) {}

GrpcConnection::~GrpcConnection() {
  std::thread reaper;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
    channel_ = nullptr;
    reaper = std::move(reaper_);
    changed_.notify_all();
  }
  if (reaper.joinable()) reaper.join();
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> GrpcConnection::Acquire() {
  const SignalsBlocked blocked;
  std::unique_lock<std::mutex> lock(mu_);
  if (channel_ == nullptr) {
    MONARCH_ASSIGN_OR_RETURN(ScopedFd fd, open_fd_());
    grpc::ChannelArguments arguments;
    // Error details carry stderr tails of many ranks; they travel as metadata, whose default maximum is 8
    // KiB.
    arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 16 << 20);
    arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
    // Made from an fd, a channel cannot connect again; it fails, and the next request opens another.
    channel_ = grpc::CreateCustomInsecureChannelFromFd("monarchd", fd.release(), arguments);
    if (!std::exchange(reaping_, true)) {
      if (reaper_.joinable()) reaper_.join();  // It left its loop before it cleared the flag.
      reaper_ = std::thread([this] { Reap(); });
    }
  }
  ++users_;
  return channel_;
}

void GrpcConnection::Release() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--users_ == 0) idle_since_ = clock_.Now();
  changed_.notify_all();
}

void GrpcConnection::Drop(const grpc::Channel* channel) {
  std::lock_guard<std::mutex> lock(mu_);
  if (channel == nullptr || channel_.get() == channel) channel_ = nullptr;
  changed_.notify_all();
}

void GrpcConnection::Reap() {
  std::unique_lock<std::mutex> lock(mu_);
  while (!ending_ && channel_ != nullptr) {
    const absl::Duration left = idle_since_ + idle_ - clock_.Now();
    if (users_ > 0) {
      changed_.wait(lock);
    } else if (left > absl::ZeroDuration()) {
      changed_.wait_for(lock, absl::ToChronoNanoseconds(left));
    } else {
      channel_ = nullptr;
    }
  }
  reaping_ = false;
}

}  // namespace monarch
