#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failure_event.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"
#include "proto/failure_event_conversion.h"

namespace monarch::ctl {
namespace {

// One line of the tree with what hangs below it.
struct Node {
  std::string text;
  std::vector<Node> below;
};

void Print(const std::vector<Node>& nodes, const std::string& indent, std::string* out) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool last = i + 1 == nodes.size();
    absl::StrAppend(out, indent, last ? "└─ " : "├─ ", nodes[i].text, "\n");
    Print(nodes[i].below, indent + (last ? "   " : "│  "), out);
  }
}

using ActorKey = std::tuple<std::string, uint64_t, uint32_t, uint64_t>;

ActorKey KeyOf(const v1::ActorAddress& address) {
  return {address.proc().host(), address.proc().proc(), address.proc().incarnation(), address.actor()};
}

// The supervision tree of one session: who owns whom. What the daemon says is not trusted to be a tree: each
// actor is shown once, below its owner if that is known, else below the session. Threading: confined to one
// thread.
class SessionTree {
 public:
  SessionTree(const v1::SessionInfo& session, const v1::GetTreeResponse& tree) : session_(session) {
    for (const v1::ActorActivity& one : tree.activities()) {
      if (one.hung()) hung_[KeyOf(one.actor())] = &one;
    }
    for (const v1::ProcInfo& proc : session.procs()) {
      pids_[{proc.address().host(), proc.address().proc(), proc.address().incarnation(), 0}] = proc.pid();
    }
    for (const v1::ActorInfo& actor : session.actors()) {
      owned_[KeyOf(actor.owner())].push_back(&actor);
      if (actor.has_restarts() && actor.restarts().of_procs())
        of_procs_[actor.restarts().mesh()] = &actor.restarts();
    }
  }

  Node Build() {
    Node top;
    top.text = absl::StrCat(Printable(session_.name()), "  (session ", ShortSession(session_.session()),
                            ", client pid ", session_.client_pid(), ", ", FormatAge(session_.age_ms()), ")");
    AddProcMeshes(&top);
    v1::ActorAddress root;
    *root.mutable_proc() = session_.client();
    root.set_actor(kRootActor);
    AddOwnedBy(KeyOf(root), 0, &top);
    while (!owned_.empty()) AddOwnedBy(NextUnowned(), 0, &top);
    return top;
  }

 private:
  struct Mesh {
    std::vector<const v1::ActorInfo*> members;
    uint32_t incarnation = 0;
    const v1::MeshRestarts* restarts = nullptr;
  };

  static constexpr uint64_t kRootActor = 1;  // base/ids.h
  static constexpr int kDepthMax = 64;       // deeper actors are shown below the session

  void AddProcMeshes(Node* node) const {
    std::map<std::string, std::map<std::string, int>> phases;
    for (const v1::ProcInfo& proc : session_.procs()) ++phases[proc.mesh()][proc.phase()];
    for (const auto& [mesh, counts] : phases) {
      std::vector<std::string> parts;
      for (const auto& [phase, count] : counts) parts.push_back(absl::StrCat(count, " ", Printable(phase)));
      Node line{absl::StrCat("procs ", Printable(mesh), ": ", absl::StrJoin(parts, ", ")), {}};
      const auto found = of_procs_.find(mesh);
      if (found != of_procs_.end()) AddRestarts(*found->second, found->second->incarnation(), &line);
      node->below.push_back(std::move(line));
    }
  }

  // What became of a mesh with a restart policy, behind its name and below it.
  static void AddRestarts(const v1::MeshRestarts& restarts, uint32_t incarnation, Node* mesh) {
    absl::StrAppend(&mesh->text, "  (incarnation ", incarnation, ", ", restarts.restarts(),
                    restarts.restarts() == 1 ? " restart" : " restarts", " by ", Printable(restarts.policy()),
                    restarts.given_up() ? ", given up)" : ")");
    if (!restarts.has_cause()) return;
    const absl::StatusOr<FailureEvent> cause = FromProto(restarts.cause());
    const std::string text = cause.ok() ? cause->Summary() : std::string(cause.status().message());
    mesh->below.insert(mesh->below.begin(), {absl::StrCat("last cause: ", Printable(text)), {}});
  }

  // An owner that nothing else leads to: one that is not itself owned by an actor in the list, if there is
  // one.
  ActorKey NextUnowned() const {
    std::map<ActorKey, bool> is_child;
    for (const auto& [owner, actors] : owned_) {
      for (const v1::ActorInfo* actor : actors) is_child[KeyOf(actor->address())] = true;
    }
    for (const auto& [owner, actors] : owned_) {
      if (!is_child.contains(owner)) return owner;
    }
    return owned_.begin()->first;
  }

  void AddOwnedBy(const ActorKey& owner, int depth, Node* node) {
    auto found = owned_.find(owner);
    if (found == owned_.end() || depth > kDepthMax) return;
    const std::vector<const v1::ActorInfo*> actors = std::move(found->second);
    owned_.erase(found);
    std::map<std::string, Mesh> meshes;
    for (const v1::ActorInfo* actor : actors) {
      if (actor->has_restarts()) {
        AddSupervised(*actor, depth, node);
        continue;
      }
      Mesh& mesh = meshes[actor->mesh()];
      mesh.incarnation = std::max(mesh.incarnation, actor->incarnation());
      mesh.members.push_back(actor);
    }
    for (auto& [name, mesh] : meshes) node->below.push_back(MeshNode(name, mesh, depth));
  }

  Node MeshNode(const std::string& name, const Mesh& mesh, int depth) {
    std::map<uint32_t, uint32_t> newest;  // incarnation of each rank
    for (const v1::ActorInfo* actor : mesh.members)
      newest[actor->rank()] = std::max(newest[actor->rank()], actor->incarnation());
    Node node;
    node.text =
        absl::StrCat("actors ", Printable(name), ": ", Printable(mesh.members.front()->actor_class()));
    for (const v1::ActorInfo* actor : mesh.members) {
      // One that failed is of no interest once its rank was made again.
      if (actor->incarnation() < newest[actor->rank()]) continue;
      Node line{ActorText(*actor), {}};
      AddOwnedBy(KeyOf(actor->address()), depth + 1, &line);
      node.below.push_back(std::move(line));
    }
    if (mesh.restarts != nullptr) {
      AddRestarts(*mesh.restarts, std::max(mesh.incarnation, mesh.restarts->incarnation()), &node);
    } else if (mesh.incarnation > 1) {
      absl::StrAppend(&node.text, "  (incarnation ", mesh.incarnation, ", with its processes)");
    }
    return node;
  }

  // The mesh of a supervising actor stands where that stood.
  void AddSupervised(const v1::ActorInfo& supervisor, int depth, Node* node) {
    const v1::MeshRestarts& restarts = supervisor.restarts();
    const auto found = owned_.find(KeyOf(supervisor.address()));
    Mesh mesh;
    mesh.restarts = &restarts;
    if (found != owned_.end()) {
      for (const v1::ActorInfo* actor : found->second) {
        mesh.incarnation = std::max(mesh.incarnation, actor->incarnation());
        mesh.members.push_back(actor);
      }
      owned_.erase(found);
    }
    if (!mesh.members.empty()) {
      node->below.push_back(MeshNode(restarts.mesh(), mesh, depth));
    } else if (!restarts.of_procs()) {
      Node none{absl::StrCat("actors ", Printable(restarts.mesh()), ": none on this host"), {}};
      AddRestarts(restarts, restarts.incarnation(), &none);
      node->below.push_back(std::move(none));
    }
  }

  std::string ActorText(const v1::ActorInfo& actor) const {
    std::string text =
        actor.rank_label().empty() ? absl::StrCat("rank ", actor.rank()) : Printable(actor.rank_label());
    const v1::ProcAddress& proc = actor.address().proc();
    if (auto pid = pids_.find({proc.host(), proc.proc(), proc.incarnation(), 0}); pid != pids_.end()) {
      absl::StrAppend(&text, "  pid ", pid->second);
    }
    absl::StrAppend(&text, "  ", Printable(actor.state()));
    if (auto hung = hung_.find(KeyOf(actor.address())); hung != hung_.end()) {
      absl::StrAppend(&text, ", HUNG in ", Printable(hung->second->method()), " for ",
                      FormatAge(hung->second->age_ms()));
    }
    return text;
  }

  const v1::SessionInfo& session_;
  std::map<ActorKey, int64_t> pids_;  // of procs; the key's actor is 0
  std::map<ActorKey, const v1::ActorActivity*> hung_;
  std::map<std::string, const v1::MeshRestarts*> of_procs_;
  std::map<ActorKey, std::vector<const v1::ActorInfo*>> owned_;  // not shown yet
};

}  // namespace

std::string FormatTree(const std::vector<Snapshot>& snapshots) {
  std::string text;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.answer.ok()) continue;
    const v1::GetStatusResponse& status = snapshot.status;
    absl::StrAppend(&text, Printable(status.host_name()), "  (", status.is_private() ? "private" : "system",
                    " daemon, pid ", status.pid(), ", up ", FormatAge(status.uptime_ms()), ")\n");
    std::vector<Node> sessions;
    for (const v1::SessionInfo& session : snapshot.tree.sessions())
      sessions.push_back(SessionTree(session, snapshot.tree).Build());
    Print(sessions, "", &text);
  }
  return absl::StrCat(text, FormatUnanswered(snapshots));
}

}  // namespace monarch::ctl
