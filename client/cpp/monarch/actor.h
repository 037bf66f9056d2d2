#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/failure_event.h"
#include "base/ndslice.h"
#include "message/value.h"
#include "monarch/codec.h"

namespace monarch {

// Base of a user's actors. Made in a worker from the constructor arguments given to ProcMesh::Spawn; handles
// one message at a time. Threading: all calls of one actor come one after the other, not necessarily on one
// thread.
class Actor {
 public:
  virtual ~Actor() = default;
  // Something this actor spawned has failed. True: handled. False: this actor fails too.
  virtual bool OnFailure(const FailureEvent& event) {
    static_cast<void>(event);
    return false;
  }
  // Once, before the actor goes: null after a stop, else why it failed.
  virtual void OnStop(const FailureEvent* failure) { static_cast<void>(failure); }

 protected:
  // Place in the mesh as spawned: never changes. Not yet set in the constructor.
  size_t rank() const { return rank_; }
  const Shape& shape() const { return shape_; }
  // Whether nobody waits any more for the answer of the endpoint that runs: its caller cancelled the call, or
  // the call's limit has passed. For long endpoints that can stop earlier. In the endpoint, and in threads it
  // waits for.
  bool call_given_up() const { return given_up_ && given_up_(); }

 private:
  friend class ActorStrand;
  std::function<bool()> given_up_;  // while an endpoint runs
  size_t rank_ = 0;
  Shape shape_;
};

// One class of actors: how to make one, and its endpoints by name.
// Threading: immutable once the program runs.
class ActorType {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Actor>>(const Value::List& args)>;
  using Method = std::function<absl::StatusOr<Value>(Actor& actor, const Value::List& args)>;

  // `method`: R (A::*)(Args...), const or not; R is void, absl::Status, a type with a Codec, or
  // absl::StatusOr of one. A status that is not OK goes to the caller; the actor lives.
  template <typename A, typename R, typename... Args>
  ActorType& Endpoint(const std::string& name, R (A::*method)(Args...)) {
    methods_[name] = [method](Actor& actor, const Value::List& args) {
      return Run<R, Args...>(args, [&](auto&&... each) -> R {
        return (static_cast<A&>(actor).*method)(std::forward<decltype(each)>(each)...);
      });
    };
    return *this;
  }
  template <typename A, typename R, typename... Args>
  ActorType& Endpoint(const std::string& name, R (A::*method)(Args...) const) {
    methods_[name] = [method](Actor& actor, const Value::List& args) {
      return Run<R, Args...>(args, [&](auto&&... each) -> R {
        return (static_cast<const A&>(actor).*method)(std::forward<decltype(each)>(each)...);
      });
    };
    return *this;
  }

  const Factory& factory() const { return factory_; }
  const Method* FindMethod(const std::string& name) const {
    const auto it = methods_.find(name);
    return it == methods_.end() ? nullptr : &it->second;
  }

 private:
  friend class ActorTypes;

  template <typename T>
  struct IsStatusOr : std::false_type {};
  template <typename T>
  struct IsStatusOr<absl::StatusOr<T>> : std::true_type {
    using Inner = T;
  };

  template <typename R, typename... Args, typename F>
  static absl::StatusOr<Value> Run(const Value::List& list, F&& call) {
    auto args = DecodeArgs<std::decay_t<Args>...>(list);
    if (!args.ok()) return args.status();
    if constexpr (std::is_void_v<R>) {
      std::apply(call, *std::move(args));
      return Value();
    } else if constexpr (std::is_same_v<R, absl::Status>) {
      absl::Status status = std::apply(call, *std::move(args));
      if (!status.ok()) return status;
      return Value();
    } else if constexpr (IsStatusOr<R>::value) {
      R result = std::apply(call, *std::move(args));
      if (!result.ok()) return result.status();
      return Codec<typename IsStatusOr<R>::Inner>::To(*std::move(result));
    } else {
      return Codec<std::decay_t<R>>::To(std::apply(call, *std::move(args)));
    }
  }

  Factory factory_;
  std::map<std::string, Method> methods_;
};

// The actor classes of a program, by name: the same in client and workers, since workers run the client's own
// binary. Threading: filled before Client::Connect and RunWorker, immutable afterwards.
class ActorTypes {
 public:
  // A is made from Args: ProcMesh::Spawn("name", "ClassName", args...).
  template <typename A, typename... Args>
  ActorType& Add(const std::string& name) {
    ActorType& type = types_[name];
    type.factory_ = [](const Value::List& list) -> absl::StatusOr<std::unique_ptr<Actor>> {
      auto args = DecodeArgs<Args...>(list);
      if (!args.ok()) return args.status();
      return std::apply(
          [](auto&&... each) { return std::make_unique<A>(std::forward<decltype(each)>(each)...); },
          *std::move(args));
    };
    return type;
  }

  const ActorType* Find(const std::string& name) const {
    const auto it = types_.find(name);
    return it == types_.end() ? nullptr : &it->second;
  }

 private:
  std::map<std::string, ActorType> types_;
};

// Whether this process was started as a worker of a mesh of C++ actors. main() then returns RunWorker.
bool IsWorker(int argc, char** argv);
// Serves actors of these types until the mesh is stopped; returns the process's exit status.
int RunWorker(const ActorTypes& types);

}  // namespace monarch
