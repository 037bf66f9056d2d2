// A mesh of C++ actors: four processes of this same program, one Trainer in each.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "monarch/client.h"

namespace {

class Trainer : public monarch::Actor {
 public:
  explicit Trainer(double rate) : rate_(rate) {}

  absl::StatusOr<double> Train(int64_t step) {
    if (step < 0) return absl::InvalidArgumentError("step must not be negative");
    loss_ -= rate_ * static_cast<double>(rank() + 1);
    return loss_;
  }
  std::vector<int64_t> Place() const {
    return {static_cast<int64_t>(rank()), static_cast<int64_t>(shape().size())};
  }

 private:
  double rate_;
  double loss_ = 10;
};

int Fail(const absl::Status& status) {
  std::cerr << status.ToString() << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  monarch::ActorTypes types;
  types.Add<Trainer, double>("Trainer").Endpoint("train", &Trainer::Train).Endpoint("place", &Trainer::Place);
  if (monarch::IsWorker(argc, argv)) return monarch::RunWorker(types);

  auto client = monarch::Client::Connect();
  if (!client.ok()) return Fail(client.status());
  auto procs = (*client)->this_host().SpawnProcs({{"gpus", 4}});
  if (!procs.ok()) return Fail(procs.status());
  auto trainers = procs->Spawn("trainers", "Trainer", 0.5);
  if (!trainers.ok()) return Fail(trainers.status());

  auto losses = trainers->Call<double>("train", int64_t{0}).Get();
  if (!losses.ok()) return Fail(losses.status());
  for (size_t rank = 0; rank < losses->size(); ++rank) {
    std::cout << "rank " << rank << ": loss " << (*losses)[rank] << '\n';
  }

  auto last = trainers->At("gpus", 3);
  if (!last.ok()) return Fail(last.status());
  auto place = last->CallOne<std::vector<int64_t>>("place").Get();
  if (!place.ok()) return Fail(place.status());
  std::cout << "the slice holds rank " << (*place)[0] << " of " << (*place)[1] << '\n';

  const absl::Status refused = last->CallOne<double>("train", int64_t{-1}).Get().status();
  std::cout << "an endpoint's error: " << refused.ToString() << '\n';

  const absl::Status stopped = procs->Stop();
  if (!stopped.ok()) return Fail(stopped);
  std::cout << "stopped\n";
  return 0;
}
