// Writes the corpora of the fuzz targets into a directory: `bazel run //tests/fuzz:make_corpus --
// $PWD/tests/fuzz/corpus`. Run again after a change of a wire format.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/runtime/deadlock_probe.h"
#include "daemon/adoption.h"
#include "daemon/launcher/launcher_messages.h"
#include "daemon/session_book.h"
#include "daemon/state_file.h"
#include "message/bytes.h"
#include "message/control_message.h"
#include "message/frame.h"
#include "message/payload.h"
#include "message/value.h"

namespace monarch {
namespace {

const ProcAddress kProc = {HostId({0x1011121314151617, 0x18191a1b1c1d1e1f}), 7, 2};

// Threading: confined to its caller.
class Corpus {
 public:
  explicit Corpus(std::string root) : root_(std::move(root)) {}

  void Write(const std::string& target, const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(root_ + "/" + target);
    std::ofstream file(root_ + "/" + target + "/" + name, std::ios::binary);
    file << bytes;
    failed_ |= !file.good();
  }
  bool failed() const { return failed_; }

 private:
  std::string root_;
  bool failed_ = false;
};

std::string HeaderBytes(FrameKind kind, uint16_t flags) {
  FrameHeader header;
  header.kind = kind;
  header.payload_kind = PayloadKind::kValue;
  header.flags = flags;
  header.session = SessionId({1, 2});
  header.sender = {kProc, 0x100000005};
  header.receiver = {kProc, kRootActor};
  header.sequence = 11;
  header.call_id = 12;
  header.payload_length = 0x2000;
  header.segment_offset = (flags & kFlagInSegment) != 0 ? 0x40 : 0;
  std::string bytes(kFrameHeaderBytes, 0);
  EncodeFrameHeader(header, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  return bytes;
}

std::string PayloadBytes(const std::string& meta, const std::vector<std::string>& parts) {
  std::vector<absl::Span<const uint8_t>> spans;
  for (const std::string& part : parts) {
    spans.emplace_back(reinterpret_cast<const uint8_t*>(part.data()), part.size());
  }
  const PayloadWriter writer(meta, spans);
  std::string bytes(writer.size(), 0);
  writer.WriteTo(reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

Value NestedLists(int depth) {
  Value value;
  for (int i = 0; i < depth; ++i) value = Value::List{value};
  return value;
}

FailureEvent Event(int causes) {
  FailureEvent event;
  event.kind = FailureKind::kSignalled;
  event.mesh = "mesh";
  event.rank = 4;
  event.actor_class = "module.Class";
  event.actor = {kProc, 8};
  event.pid = 12;
  event.code = 9;
  event.stderr_tail = "one\ntwo\n";
  if (causes > 0) event.cause.push_back(Event(causes - 1));
  return event;
}

std::string RingBytes(uint64_t tail, uint64_t head, uint32_t room_word, const std::string& data) {
  std::string bytes;
  AppendLe<uint64_t>(&bytes, tail);
  AppendLe<uint64_t>(&bytes, head);
  AppendLe<uint32_t>(&bytes, room_word);
  return bytes + data;
}

std::string Record(const std::string& text) {
  std::string bytes;
  AppendLe<uint32_t>(&bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

void WriteCodecs(Corpus* corpus) {
  corpus->Write("frame_header", "call", HeaderBytes(FrameKind::kCall, kFlagUrgent));
  corpus->Write("frame_header", "segment", HeaderBytes(FrameKind::kCall, kFlagInSegment | kFlagShared));
  corpus->Write("frame_header", "cancel", HeaderBytes(FrameKind::kCancel, kFlagUrgent));
  corpus->Write("frame_header", "reply", HeaderBytes(FrameKind::kReply, kFlagReply));

  corpus->Write("payload", "meta", PayloadBytes("meta", {}));
  corpus->Write("payload", "parts", PayloadBytes("meta!", {"abc", "", "0123456789"}));
  corpus->Write("payload", "large_part", PayloadBytes("m", {"x", std::string(4096, 'p'), "y"}));

  const Value all = Value::Map{{"a", Value()},
                               {"b", false},
                               {"c", true},
                               {"d", std::numeric_limits<int64_t>::min()},
                               {"e", 1.5e300},
                               {"f", "text \xC3\xA9"},
                               {"g", Value::Bytes{std::string("\xFF\0", 2)}},
                               {"h", Value::List{1, "two", Value(Value::List())}},
                               {"i", Value::Array{"i2", {1, 2}, std::string("\x01\x00\xFF\xFF", 4)}}};
  corpus->Write("value", "all", *EncodeValue(all));
  corpus->Write("value", "deep", *EncodeValue(NestedLists(64)));
  corpus->Write("value", "list", *EncodeValue(Value::List{1, 2.5, "x", Value::Bytes{"y"}}));

  corpus->Write("control_message", "introduce",
                *EncodeControl({ControlType::kIntroduce, 5,
                                Value::Map{{"peer", ToValue(kProc)}, {"mode", "ring"}, {"side", 1}}}));
  corpus->Write("control_message", "ready", *EncodeControl({ControlType::kReady, 0, Value()}));
  corpus->Write(
      "control_message", "actor_peer",
      *EncodeControl({ControlType::kUndelivered, 0, Value::Map{{"peer", ToValue(ActorAddress{kProc, 3})}}}));
  corpus->Write("control_message", "relay_pause",
                *EncodeControl({ControlType::kRelayPause, 0, Value::Map{{"peer", ToValue(kProc)}}}));

  corpus->Write("failure_event", "plain", EncodeFailureEvent(Event(0)));
  corpus->Write("failure_event", "causes", EncodeFailureEvent(Event(16)));
  corpus->Write("failure_event", "empty", EncodeFailureEvent(FailureEvent()));

  const ActorAddress a = {kProc, 3}, b = {kProc, 4};
  Probe probe;
  probe.path = {{a, 1, "a", "f", b, 2, 0, std::nullopt}};
  corpus->Write("deadlock_probe", "search", *EncodeValue(ToValue(probe)));
  probe.phase = Probe::Phase::kVerdict;
  probe.path.push_back({b, 5, "b", "", a, 6, 1, "g"});
  probe.at = 1;
  corpus->Write("deadlock_probe", "verdict", *EncodeValue(ToValue(probe)));
}

void WriteLauncherMessages(Corpus* corpus) {
  const SessionId session({1, 2});
  LaunchRequest launch;
  launch.proc = kProc;
  launch.argv = {"sh", "-c", "true"};
  launch.env = {"A=b", "LATIN=\xE4"};
  launch.cwd = "/tmp";
  launch.umask = 022;
  launch.limits = {{4, 0, 10}, {7, 10, ~uint64_t{0}}};
  launch.cpus = {0, 3};
  launch.token = "0123456789abcdef";
  launch.boot = "boot";
  launch.label = "workers[0]";
  const auto write = [corpus](const std::string& name, ControlType type, Value body) {
    corpus->Write("launcher_messages", name, *EncodeControl({type, 1, std::move(body)}));
  };
  LauncherSetup setup;
  setup.session = session;
  setup.client_pid = 5;
  setup.log_path = "/log";
  setup.worker_log_bytes_max = 9;
  setup.resume_path = "/door";
  setup.resume_token = StartToken({3, 4});
  setup.absence_ms = 600'000;
  write("setup", ControlType::kSetup, ToBody(setup));
  write("launch", ControlType::kLaunch, ToBody(launch));
  write("failed", ControlType::kLaunchFailed, ToBody(LaunchFailure{kProc, "exec", 2, "no such file"}));
  write("dying", ControlType::kDying, ToBody(WorkerDying{kProc, {0, 9, false}}));
  write("exited", ControlType::kExited, ToBody(WorkerExit{kProc, {3, 0, true}, "last line", "#0 f", {}, 77}));
  write("boot", ControlType::kBoot, ToBody(WorkerBoot{session, kProc, "token", "boot"}));
}

void WriteSequencesAndRings(Corpus* corpus) {
  std::string in_order;
  std::string shuffled;
  for (int i = 0; i < 60; ++i) {
    // Flags: first, last, none.
    const int flags = i % 20 < 2 ? 0x40 : i % 20 < 18 ? 0 : 0x80;
    in_order += {static_cast<char>(i % 2), '\0', static_cast<char>(flags | 1)};
    shuffled += {static_cast<char>(i % 7 == 6 ? 15 : i % 3), static_cast<char>(i % 5),
                 static_cast<char>((i % 4) << 6 | (1 + i % 6))};
  }
  corpus->Write("sequencer", "in_order", in_order);
  corpus->Write("sequencer", "shuffled", shuffled);
  corpus->Write("sequencer", "far", std::string("\xE0\x00\xFF\xF0\x01\x80\xFE\x02\x01", 9) + in_order);

  const std::string two = Record("first") + Record(std::string(100, 's'));
  corpus->Write("ring", "empty", RingBytes(0, 0, 0, ""));
  corpus->Write("ring", "two_records", RingBytes(two.size(), 0, 5, two));
  corpus->Write("ring", "full", RingBytes(16384, 0, 0, Record("again")));
  corpus->Write("ring", "too_long_a_record", RingBytes(16384, 0, 0, std::string("\xFF\xFF\xFF\xFF", 4)));
  corpus->Write("ring", "tail_far_away", RingBytes(~uint64_t{0}, 8, 1, two));
}

// A packet between daemons, behind its length.
std::string Packet(const std::string& bytes) {
  std::string out;
  AppendLe<uint32_t>(&out, static_cast<uint32_t>(bytes.size()));
  return out + bytes;
}

void WritePeerLinks(Corpus* corpus) {
  corpus->Write("peer_link", "beat", Packet(*EncodeControl({ControlType::kBeat, 0, Value()})));
  const Value to_proc =
      Value::Map{{"to", ToValue(kProc)}, {"type", 17}, {"body", Value::Map{{"peer", ToValue(kProc)}}}};
  corpus->Write("peer_link", "to_proc", Packet(*EncodeControl({ControlType::kToProc, 3, to_proc})));
  const std::string whole = HeaderBytes(FrameKind::kCall, 0);
  corpus->Write("peer_link", "frame", Packet(whole + std::string(0x2000, 'p')));
  const Value begin = Value::Map{{"number", 1}, {"header", Value::Bytes{whole}}};
  std::string piece = "MNB1";
  AppendLe<uint32_t>(&piece, 1);
  piece.append(0x1000, 'p');
  corpus->Write("peer_link", "pieces",
                Packet(*EncodeControl({ControlType::kFrameBegin, 0, begin})) + Packet(piece) + Packet(piece));
}

}  // namespace
}  // namespace monarch

namespace monarch {
namespace {

void WriteSessionStates(Corpus* corpus) {
  const auto file = [corpus](const std::string& name, const Value& value) {
    corpus->Write("session_state", name + ".state", *EncodeState(value));
    corpus->Write("session_state", name, *EncodeValue(value));
  };
  LauncherState launcher{SessionId({1, 2}), kProc.host, 77, 123456, StartToken(), "/run/door.sock"};
  launcher.token = StartToken({3, 4});
  file("launcher", ToValue(launcher));
  file("host", Value::Map{{"host", ToValue(kProc.host)}, {"generation", Value(3)}, {"boot", Value("boot")}});
  const auto entry = [corpus](const std::string& name, const BookEntry& kept) {
    corpus->Write("session_state", name, *EncodeValue(kept.body));
  };
  SessionClient client;
  client.pid = 12;
  client.name = "train.py";
  entry("client", EntryOf(client, kProc));
  ProcRecord proc;
  proc.description.address = kProc;
  proc.description.mesh = "workers";
  entry("proc", EntryOf(proc));
  entry("link", EntryOf(KeptLink{1, 2, true, 5, 6, false, {}}));
  KeptSpawn spawn;
  spawn.request_id = "s1";
  spawn.count = 1;
  entry("spawn", EntryOf(spawn));
  entry("end", EntryOf(1, {kProc, Event(0), {{"mesh", 3, "module.Class"}}}));
  entry("failure", FailureEntry(1, Event(1)));
  ActorRecord actor;
  actor.address = actor.owner = {kProc, 9};
  actor.mesh = "mesh";
  entry("actor", EntryOf(actor));
  KeptHang hang;
  hang.notice.event.kind = FailureKind::kHung;
  hang.notice.event.actor = actor.address;
  hang.notice.hang.method = "train";
  entry("hang", EntryOf(hang));
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus DIRECTORY\n");
    return 2;
  }
  monarch::Corpus corpus(argv[1]);
  monarch::WriteCodecs(&corpus);
  monarch::WriteLauncherMessages(&corpus);
  monarch::WriteSequencesAndRings(&corpus);
  monarch::WritePeerLinks(&corpus);
  monarch::WriteSessionStates(&corpus);
  return corpus.failed() ? 1 : 0;
}
