#include "client/cpp/runtime/service_thread.h"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace monarch {

// Threading: guarded by mu.
struct ServiceThread::Shared {
  Mutex mu;
  CondVar changed;
  bool started ABSL_GUARDED_BY(mu) = false;
  bool go ABSL_GUARDED_BY(mu) = false;
  bool quit ABSL_GUARDED_BY(mu) = false;
  absl::Status first ABSL_GUARDED_BY(mu);
};

absl::StatusOr<std::unique_ptr<ServiceThread>> ServiceThread::Start(std::function<absl::Status()> first) {
  auto loop = MakeEpollEventLoop();
  if (!loop.ok()) return loop.status();
  std::unique_ptr<ServiceThread> service(new ServiceThread());
  service->loop_ = *std::move(loop);
  service->shared_ = std::make_shared<Shared>();
  auto main = [shared = service->shared_, loop = service->loop_, first = std::move(first)] {
    pthread_setname_np(pthread_self(), "monarch-service");
    absl::Status status = first ? first() : absl::OkStatus();
    {
      MutexLock lock(shared->mu);
      shared->started = true;
      shared->first = std::move(status);
      shared->changed.NotifyAll();
      while (!shared->go && !shared->quit) shared->changed.Wait(shared->mu);
      if (shared->quit) return;
    }
    loop->Run();
  };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::Status started;
  try {
    service->thread_ = std::thread(std::move(main));
  } catch (const std::system_error& error) {
    started = absl::ResourceExhaustedError(absl::StrCat("start the service thread: ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started.ok()) return started;
  Shared& shared = *service->shared_;
  {
    MutexLock lock(shared.mu);
    while (!shared.started) shared.changed.Wait(shared.mu);
    started = shared.first;
  }
  if (!started.ok()) return started;
  return service;
}

void ServiceThread::Run() {
  MutexLock lock(shared_->mu);
  shared_->go = true;
  shared_->changed.NotifyAll();
}

void ServiceThread::Abandon() { thread_.detach(); }

ServiceThread::~ServiceThread() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(shared_->mu);
    shared_->quit = true;
    shared_->changed.NotifyAll();
  }
  loop_->Stop();
  thread_.join();
}

}  // namespace monarch
