// Read by the sanitizers' run times where one is linked in; inert otherwise.
extern "C" {
// gRPC, protobuf and abseil are the system's, without instrumentation: how they synchronise is not seen.
const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
// monarch-launcher leaves by _exit: an output thread of it may sit in a write for ever, so none is waited
// for.
const char* __tsan_default_suppressions() {
  return "race:^grpc::\nrace:grpc_core::\nrace:google::protobuf\nmutex:absl::\ndeadlock:absl::\n"
         "thread:monarch::OutputSink\n";
}
}
