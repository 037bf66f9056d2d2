// Runs a fuzz target without libFuzzer: the corpus files given as arguments, then seeded mutations of them.
// The same seed and corpus give the same inputs; MONARCH_FUZZ_SEED and MONARCH_FUZZ_RUNS choose others.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace monarch {
namespace {

constexpr uint64_t kRunsDefault = 20'000;
constexpr uint64_t kSeedDefault = 1;
// A slow target ends early instead of using up its test's time.
constexpr absl::Duration kTimeMax = absl::Seconds(5);
constexpr size_t kInputBytesMax = 64 * 1024;

using Input = std::vector<uint8_t>;

// For the signal handler, which may not allocate.
const Input* g_input = nullptr;
char g_crash_path[4096];

extern "C" void SaveInput(int signal) {
  const int fd = open(g_crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && g_input != nullptr && write(fd, g_input->data(), g_input->size()) >= 0) {
    const char text[] = "the input that failed is in crash-input, in the test's undeclared outputs\n";
    if (write(2, text, sizeof(text) - 1) < 0) _exit(1);
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void InstallHandlers() {
  const char* dir = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::snprintf(g_crash_path, sizeof(g_crash_path), "%s/crash-input", dir == nullptr ? "." : dir);
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction old = {};
    sigaction(number, nullptr, &old);
    // A sanitizer reports such a signal itself, and then aborts.
    if (old.sa_handler == SIG_DFL) ::signal(number, SaveInput);
  }
}

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// Threading: confined to its caller.
class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Input>* corpus) : random_(seed), corpus_(corpus) {}

  Input Next() {
    Input input = corpus_->empty() ? Input() : (*corpus_)[Below(corpus_->size())];
    const uint64_t steps = 1 + Below(4);
    for (uint64_t i = 0; i < steps; ++i) MutateOnce(&input);
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    return input;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  void MutateOnce(Input* input) {
    if (input->empty()) {
      input->resize(1 + Below(300));
      for (uint8_t& byte : *input) byte = static_cast<uint8_t>(random_());
      return;
    }
    const size_t at = Below(input->size());
    switch (Below(7)) {
      case 0:
        (*input)[at] ^= static_cast<uint8_t>(1 << Below(8));
        return;
      case 1:
        (*input)[at] = static_cast<uint8_t>(random_());
        return;
      case 2:
        input->resize(at);
        return;
      case 3:
        input->insert(input->begin() + at, 1 + Below(32), static_cast<uint8_t>(random_()));
        return;
      case 4:
        input->erase(input->begin() + at,
                     input->begin() + at + std::min<size_t>(1 + Below(16), input->size() - at));
        return;
      case 5:
        Splice(input, at);
        return;
      default:
        BlowUp(input, at);
    }
  }

  // The end of another input behind the beginning of this one.
  void Splice(Input* input, size_t at) {
    input->resize(at);
    if (corpus_->empty()) return;
    const Input& other = (*corpus_)[Below(corpus_->size())];
    if (!other.empty()) input->insert(input->end(), other.begin() + Below(other.size()), other.end());
  }

  // What a length or an offset must never be believed to be.
  void BlowUp(Input* input, size_t at) {
    static constexpr uint64_t kNasty[] = {
        0,      1,          0x7F,       0x80,       0xFF,           0x7FFF,
        0xFFFF, 0x10000,    0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,     0x100000000,
        ~0ull,  ~0ull >> 1, 1ull << 63, ~0ull - 7,  ~0ull - 0x1000, 1ull << 32};
    const uint64_t value = kNasty[Below(std::size(kNasty))];
    const size_t width = size_t{1} << Below(4);
    for (size_t i = 0; i < width && at + i < input->size(); ++i) {
      (*input)[at + i] = static_cast<uint8_t>(value >> (8 * i));
    }
  }

  std::mt19937_64 random_;
  const std::vector<Input>* corpus_;
};

void RunOne(const Input& input) {
  g_input = &input;
  // A buffer of just that size, so that a sanitizer sees a read past its end.
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  g_input = nullptr;
}

int Main(int argc, char** argv) {
  InstallHandlers();
  std::vector<Input> corpus;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "open %s: failed\n", argv[i]);
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const uint64_t seed = NumberFromEnvironment("MONARCH_FUZZ_SEED", kSeedDefault);
  const uint64_t runs = NumberFromEnvironment("MONARCH_FUZZ_RUNS", kRunsDefault);
  std::printf("seed %llu, %zu corpus files, %llu runs\n", static_cast<unsigned long long>(seed),
              corpus.size(), static_cast<unsigned long long>(runs));
  std::fflush(stdout);

  RunOne(Input());
  for (const Input& input : corpus) RunOne(input);
  const SystemClock clock;
  const absl::Duration end = clock.Now() + kTimeMax;
  Mutator mutator(seed, &corpus);
  uint64_t done = 0;
  for (; done < runs && clock.Now() < end; ++done) RunOne(mutator.Next());
  std::printf("%llu mutations run\n", static_cast<unsigned long long>(done));
  return 0;
}

}  // namespace
}  // namespace monarch

int main(int argc, char** argv) { return monarch::Main(argc, argv); }
