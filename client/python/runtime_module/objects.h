#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "client/cpp/runtime/runtime.h"
#include "client/python/runtime_module/python.h"

namespace monarch::python {

// What Python holds. Threading: under the GIL, except where a method says that it releases it.

struct PyNotifier {
  std::shared_ptr<Notifier> notifier;
};

// An actor's mailbox, a call's answers or a port. The last two are closed with their Python object: nobody
// can read them any more. Threading: as the Inbox.
class PyInbox {
 public:
  PyInbox(std::shared_ptr<Runtime> runtime, std::shared_ptr<Inbox> inbox, bool close)
      : runtime_(std::move(runtime)), inbox_(std::move(inbox)), close_(close) {}
  PyInbox(PyInbox&&) = default;
  PyInbox& operator=(PyInbox&&) = delete;
  ~PyInbox() {
    if (close_ && inbox_ != nullptr) runtime_->CloseInbox(*inbox_);
  }
  Inbox& inbox() const { return *inbox_; }
  Runtime& runtime() const { return *runtime_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Inbox> inbox_;
  bool close_;
};

struct PyTargets {
  std::vector<CallTarget> targets;
};

struct PyTask {
  std::shared_ptr<Runtime> runtime;
  RuntimeTask task;
};

void DefineMessage(nb::module_& module);
void DefineInbox(nb::module_& module);
void DefineRuntime(nb::module_& module);

}  // namespace monarch::python
