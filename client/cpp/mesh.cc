#include "monarch/mesh.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cpp/actor_strand.h"
#include "client/cpp/pending_call.h"
#include "client/cpp/session.h"
#include "message/control_message.h"

namespace monarch {
namespace {

using internal::ActorMeshCore;
using internal::CollectedCall;

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Value::List LabelsOf(const Shape& shape) { return Value::List(shape.labels().begin(), shape.labels().end()); }

Value::List SizesOf(const Shape& shape) {
  Value::List sizes;
  for (const size_t size : shape.slice().sizes()) sizes.push_back(static_cast<int64_t>(size));
  return sizes;
}

// The members of a slice, numbered as in the slice.
absl::StatusOr<std::vector<CallTarget>> TargetsOf(const ActorMeshCore& core, const Shape& shape) {
  std::vector<CallTarget> targets;
  targets.reserve(shape.size());
  for (const size_t rank : shape.slice().Ranks()) {
    if (rank >= core.procs.size()) return absl::InternalError("a slice reaches beyond its mesh");
    targets.push_back({{core.procs[rank], core.actor}, static_cast<uint32_t>(targets.size())});
  }
  return targets;
}

absl::StatusOr<std::shared_ptr<internal::PendingCall>> SendCall(const ActorMeshCore& core, const Shape& shape,
                                                                absl::Span<const CallTarget> targets,
                                                                const std::string& method, const Value& args,
                                                                absl::Duration limit) {
  const std::shared_ptr<Runtime>& runtime = core.session->runtime();
  MONARCH_ASSIGN_OR_RETURN(const std::string meta,
                           EncodeValue(Value::List{method, LabelsOf(shape), SizesOf(shape)}));
  MONARCH_ASSIGN_OR_RETURN(const std::string body, EncodeValue(args));
  const absl::Span<const uint8_t> part = AsBytes(body);
  const std::shared_ptr<Inbox> inbox = runtime->OpenCall(CurrentActor(), targets.size(), limit);
  auto call = std::make_shared<CollectedCall>(runtime, inbox, targets.size());
  MONARCH_RETURN_IF_ERROR(runtime->Send(CurrentActor(), FrameKind::kCall, targets,
                                        {PayloadKind::kValue, meta, {&part, 1}}, inbox.get()));
  return call;
}

// OK when every member has its mailbox.
absl::Status CreateMembers(const ActorMeshCore& mesh, const Value& args) {
  const std::shared_ptr<Runtime>& runtime = mesh.session->runtime();
  MONARCH_ASSIGN_OR_RETURN(const std::string body, EncodeValue(args));
  const absl::Span<const uint8_t> part = AsBytes(body);
  const std::shared_ptr<Inbox> inbox = runtime->OpenCall(CurrentActor(), mesh.procs.size());
  CollectedCall created(runtime, inbox, mesh.procs.size());
  for (uint32_t rank = 0; rank < mesh.procs.size(); ++rank) {
    const Value::Map fields = {
        {"actor", mesh.actor},
        {"name", mesh.name},
        {"class", mesh.actor_class},
        {"mesh", mesh.name},
        {"rank", rank},
        {"labels", LabelsOf(mesh.shape)},
        {"sizes", SizesOf(mesh.shape)},
        {"owner", ToValue(ActorAddress{runtime->self(), CurrentActor()})},
        {"owner_label", "<root>"},
        {"hung_after_ms", absl::ToInt64Milliseconds(mesh.hung_after)},
    };
    MONARCH_ASSIGN_OR_RETURN(const std::string meta, EncodeValue(fields));
    const CallTarget target{{mesh.procs[rank], kAgentActor}, rank};
    MONARCH_RETURN_IF_ERROR(runtime->Send(CurrentActor(), FrameKind::kCreate, {&target, 1},
                                          {PayloadKind::kValue, meta, {&part, 1}}, inbox.get()));
  }
  MONARCH_RETURN_IF_ERROR(created.WaitAll(absl::InfiniteDuration()));
  for (const absl::StatusOr<Value>& answer : created.answers()) MONARCH_RETURN_IF_ERROR(answer.status());
  return absl::OkStatus();
}

// A mesh is spawned whole or not at all: stops the members that exist, and waits for none.
void Abandon(const ActorMeshCore& mesh) {
  const std::shared_ptr<Runtime>& runtime = mesh.session->runtime();
  runtime->RemoveOwnedMesh(CurrentActor(), mesh.actor, mesh.name);
  std::vector<CallTarget> targets;
  for (const ProcAddress& proc : mesh.procs) targets.push_back({{proc, mesh.actor}, 0});
  const std::string meta = *EncodeValue(Value::Map{{"reason", "its mesh could not be spawned whole"}});
  static_cast<void>(
      runtime->Send(CurrentActor(), FrameKind::kStopActor, targets, {PayloadKind::kNone, meta, {}}, nullptr));
}

}  // namespace

ActorMesh::StartedCall ActorMesh::Start(const std::string& method, const Value& args) const {
  MONARCH_ASSIGN_OR_RETURN(const std::vector<CallTarget> targets, TargetsOf(*core_, shape_));
  return SendCall(*core_, shape_, targets, method, args, limit_);
}

ActorMesh::StartedCall ActorMesh::StartOne(const std::string& method, const Value& args) const {
  if (size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("CallOne requires exactly 1 actor, but mesh ", core_->name, " has ", size()));
  }
  return Start(method, args);
}

ActorMesh::StartedCall ActorMesh::StartRandom(const std::string& method, const Value& args) const {
  MONARCH_ASSIGN_OR_RETURN(std::vector<CallTarget> targets, TargetsOf(*core_, shape_));
  thread_local std::mt19937_64 random{std::random_device{}()};
  const CallTarget chosen = targets[std::uniform_int_distribution<size_t>(0, targets.size() - 1)(random)];
  return SendCall(*core_, shape_, {&chosen, 1}, method, args, limit_);
}

absl::Status ActorMesh::Send(const std::string& method, const Value& args) const {
  MONARCH_ASSIGN_OR_RETURN(const std::vector<CallTarget> targets, TargetsOf(*core_, shape_));
  MONARCH_ASSIGN_OR_RETURN(const std::string meta,
                           EncodeValue(Value::List{method, LabelsOf(shape_), SizesOf(shape_)}));
  MONARCH_ASSIGN_OR_RETURN(const std::string body, EncodeValue(args));
  const absl::Span<const uint8_t> part = AsBytes(body);
  return core_->session->runtime()->Send(CurrentActor(), FrameKind::kCall, targets,
                                         {PayloadKind::kValue, meta, {&part, 1}}, nullptr);
}

absl::StatusOr<ActorMesh> ActorMesh::At(const std::string& label, size_t index) const {
  MONARCH_ASSIGN_OR_RETURN(Shape shape, shape_.At(label, index));
  return ActorMesh(core_, std::move(shape), limit_);
}

absl::StatusOr<ActorMesh> ActorMesh::Select(const std::string& label, size_t begin, size_t end,
                                            size_t step) const {
  MONARCH_ASSIGN_OR_RETURN(Shape shape, shape_.Select(label, begin, end, step));
  return ActorMesh(core_, std::move(shape), limit_);
}

Future<void> ActorMesh::Stop(const std::string& reason) const {
  const std::shared_ptr<Runtime>& runtime = core_->session->runtime();
  auto targets = TargetsOf(*core_, shape_);
  if (!targets.ok()) return Future<void>(targets.status());
  const absl::StatusOr<std::string> meta = EncodeValue(Value::Map{{"reason", reason}});
  if (!meta.ok()) return Future<void>(meta.status());
  // The others of the mesh go on, with their owner.
  if (size() == core_->procs.size()) runtime->RemoveOwnedMesh(CurrentActor(), core_->actor, core_->name);
  const std::shared_ptr<Inbox> inbox = runtime->OpenCall(CurrentActor(), targets->size());
  auto call = std::make_shared<CollectedCall>(runtime, inbox, targets->size());
  const absl::Status sent = runtime->Send(CurrentActor(), FrameKind::kStopActor, *targets,
                                          {PayloadKind::kNone, *meta, {}}, inbox.get());
  if (!sent.ok()) return Future<void>(sent);
  // A member that is gone already is as stopped as asked for.
  call->IgnoreFailures();
  return Future<void>(std::move(call));
}

absl::StatusOr<ActorMesh> ProcMesh::SpawnActors(const std::string& name, const std::string& actor_class,
                                                const Value& args) const {
  const std::shared_ptr<Runtime>& runtime = core_->session->runtime();
  auto mesh = std::make_shared<ActorMeshCore>();
  mesh->session = core_->session;
  mesh->name = name;
  mesh->actor_class = actor_class;
  mesh->actor = runtime->NextActorId();
  mesh->hung_after = hung_after_;
  for (const size_t rank : shape_.slice().Ranks()) mesh->procs.push_back(core_->procs.at(rank));
  // The new mesh numbers its members densely, whatever slice of procs they live on.
  MONARCH_ASSIGN_OR_RETURN(NDSlice dense, NDSlice::RowMajor(shape_.slice().sizes()));
  MONARCH_ASSIGN_OR_RETURN(mesh->shape, Shape::Create(shape_.labels(), std::move(dense)));

  runtime->AddOwnedMesh({CurrentActor(), name, actor_class, mesh->actor, mesh->procs, mesh->shape});
  const absl::Status created = CreateMembers(*mesh, args);
  if (!created.ok()) {
    Abandon(*mesh);
    return created;
  }
  Shape shape = mesh->shape;
  return ActorMesh(std::move(mesh), std::move(shape));
}

absl::StatusOr<ProcMesh> ProcMesh::At(const std::string& label, size_t index) const {
  MONARCH_ASSIGN_OR_RETURN(Shape shape, shape_.At(label, index));
  return ProcMesh(core_, std::move(shape), hung_after_);
}

absl::StatusOr<ProcMesh> ProcMesh::Select(const std::string& label, size_t begin, size_t end,
                                          size_t step) const {
  MONARCH_ASSIGN_OR_RETURN(Shape shape, shape_.Select(label, begin, end, step));
  return ProcMesh(core_, std::move(shape), hung_after_);
}

std::vector<int64_t> ProcMesh::pids() const {
  std::vector<int64_t> out;
  for (const size_t rank : shape_.slice().Ranks()) out.push_back(core_->pids.at(rank));
  return out;
}

}  // namespace monarch
