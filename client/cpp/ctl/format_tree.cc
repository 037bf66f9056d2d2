#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/ctl/format.h"
#include "client/cpp/ctl/table.h"

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
    for (const v1::ActorInfo& actor : session.actors()) owned_[KeyOf(actor.owner())].push_back(&actor);
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
  static constexpr uint64_t kRootActor = 1;  // base/ids.h
  static constexpr int kDepthMax = 64;       // deeper actors are shown below the session

  void AddProcMeshes(Node* node) const {
    std::map<std::string, std::map<std::string, int>> phases;
    for (const v1::ProcInfo& proc : session_.procs()) ++phases[proc.mesh()][proc.phase()];
    for (const auto& [mesh, counts] : phases) {
      std::vector<std::string> parts;
      for (const auto& [phase, count] : counts) parts.push_back(absl::StrCat(count, " ", Printable(phase)));
      node->below.push_back({absl::StrCat("procs ", Printable(mesh), ": ", absl::StrJoin(parts, ", ")), {}});
    }
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
    std::map<std::string, Node> meshes;
    for (const v1::ActorInfo* actor : actors) {
      Node& mesh = meshes[actor->mesh()];
      mesh.text = absl::StrCat("actors ", Printable(actor->mesh()), ": ", Printable(actor->actor_class()));
      Node line{ActorText(*actor), {}};
      AddOwnedBy(KeyOf(actor->address()), depth + 1, &line);
      mesh.below.push_back(std::move(line));
    }
    for (auto& [name, mesh] : meshes) node->below.push_back(std::move(mesh));
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
