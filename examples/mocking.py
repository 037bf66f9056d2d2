"""A training loop whose expensive actor is replaced, so that the loop can be tried on any machine.

python examples/mocking.py
"""

from monarch._actor.mock import patch_actor
from monarch.actor import Actor, endpoint, this_host, this_proc


class Model(Actor):
    """Needs a GPU."""

    @endpoint
    def answer(self, prompt: str) -> str:
        raise RuntimeError("no GPU here")


class CannedModel(Actor):
    """Answers as the other, without one."""

    @endpoint
    def answer(self, prompt: str) -> str:
        return f"four is the answer to {prompt!r}"


class Learner(Actor):
    """Spawns the model that it needs; it does not know that there are two kinds."""

    @endpoint
    def rewards(self, prompts: list[str]) -> list[float]:
        model = this_proc().spawn("model", Model)
        return [1.0 if "four" in model.answer.call_one(prompt).get() else 0.0 for prompt in prompts]


def main() -> None:
    procs = this_host().spawn_procs({"gpus": 2})
    with patch_actor(Model, CannedModel):
        learners = procs.spawn("learners", Learner)
    # What is spawned under a patch keeps to it, and passes it on to what it spawns.
    print(f"rewards: {learners.rewards.call(['2 + 2', '1 + 3']).get().values()}")
    procs.stop().get()


if __name__ == "__main__":
    main()
