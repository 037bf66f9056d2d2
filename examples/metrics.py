"""Counters, histograms and spans of actors, by OpenTelemetry where it is installed.

python examples/metrics.py
"""

import importlib.util

from monarch.actor import Actor, current_rank, endpoint, get_meter, span, this_host, traced


class Trainer(Actor):
    def __init__(self) -> None:
        meter = get_meter()
        self.steps = meter.create_counter("trainer.steps", description="steps done")
        self.loss = meter.create_histogram("trainer.loss")

    @endpoint
    @traced
    def train(self, steps: int) -> float:
        loss = 1.0
        for step in range(steps):
            with span(f"step {step}"):
                loss *= 0.9
            self.steps.add(1, attributes={"rank": current_rank().rank})
            self.loss.record(loss)
        return loss


def main() -> None:
    installed = importlib.util.find_spec("opentelemetry") is not None
    where = (
        "go where OTEL_* variables and its SDK send them" if installed else "go nowhere: it is not installed"
    )
    print(f"metrics and spans by opentelemetry {where}")
    trainers = this_host().spawn_procs({"gpus": 2}).spawn("trainers", Trainer)
    losses = trainers.train.call(5).get().values()
    print(f"losses: {[round(loss, 3) for loss in losses]}")


if __name__ == "__main__":
    main()
