"""Ports and channels."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import Actor, Channel, Port, SupervisionError, current_rank, endpoint, send


class Sends(Actor):
    @endpoint
    def send_to(self, port: Port[Any], *values: Any) -> None:
        for value in values:
            port.send(value)

    @endpoint
    def fail_to(self, port: Port[Any]) -> None:
        port.exception(KeyError("from afar"))

    @endpoint
    def rank(self) -> int:
        return current_rank().rank * 10

    @endpoint
    def give_back(self, port: Port[Any]) -> Port[Any]:
        return port

    @endpoint(explicit_response_port=True)
    def explicit(self, port: Port[Any], value: Any) -> None:
        port.send(value)

    @endpoint(explicit_response_port=True)
    def explicit_error(self, port: Port[Any]) -> None:
        port.exception(ValueError("by the port"))

    @endpoint(explicit_response_port=True)
    def keep_port(self, port: Port[Any], to: Port[Any]) -> None:
        to.send(port)


@pytest.fixture
def sends(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 3}).spawn("sends", Sends)


def test_messages_of_one_sender_arrive_in_order(sends: Any) -> None:
    port, receiver = Channel.open()
    sends.slice(gpus=0).send_to.broadcast(port, *range(50))
    assert [receiver.recv().get(timeout=EVENT_S) for _ in range(50)] == list(range(50))


def test_recv_raises_what_exception_sent(sends: Any) -> None:
    port, receiver = Channel.open()
    sends.slice(gpus=0).fail_to.broadcast(port)
    with pytest.raises(KeyError, match="from afar"):
        receiver.recv().get(timeout=EVENT_S)


def test_answers_to_a_port_carry_the_rank_of_their_sender(sends: Any) -> None:
    port, receiver = Channel.open_ranked()
    send(sends.rank, (), {}, port)
    assert sorted(receiver.recv().get(timeout=EVENT_S) for _ in range(3)) == [(0, 0), (1, 10), (2, 20)]


def test_an_explicit_port_stamps_the_rank_on_each_answer(sends: Any) -> None:
    port, receiver = Channel.open()
    send(sends.explicit, ("x",), {}, port)
    ranked = receiver.ranked()
    assert sorted(ranked.recv().get(timeout=EVENT_S) for _ in range(3)) == [(0, "x"), (1, "x"), (2, "x")]


def test_a_message_without_a_rank_is_an_error_for_a_ranked_receiver() -> None:
    port, receiver = Channel.open_ranked()
    port.send(1)
    with pytest.raises(ValueError, match="has no rank"):
        receiver.recv().get(timeout=EVENT_S)


def test_a_once_port_is_used_once() -> None:
    port, receiver = Channel.open(once=True)
    port.send(1)
    with pytest.raises(RuntimeError, match="OncePortRef already used"):
        port.send(2)
    with pytest.raises(RuntimeError, match="OncePortRef already used"):
        pickle.loads(pickle.dumps(port)).send(3)
    assert receiver.recv().get(timeout=EVENT_S) == 1
    with pytest.raises(ValueError, match="OncePort is already used"):
        receiver.recv()


def test_a_value_that_cannot_be_pickled_leaves_a_once_port_usable() -> None:
    port, receiver = Channel.open(once=True)
    with pytest.raises(TypeError):
        port.send(receiver)
    port.send("second try")
    assert receiver.recv().get(timeout=EVENT_S) == "second try"


def test_a_port_that_came_back_sends_for_whoever_has_it(sends: Any) -> None:
    port, receiver = Channel.open()
    port.return_undeliverable = False
    back = sends.slice(gpus=1).give_back.call_one(port).get(timeout=EVENT_S)
    assert back.return_undeliverable is False
    back.send("home")
    assert receiver.recv().get(timeout=EVENT_S) == "home"


def test_an_explicit_port_can_send_an_exception(sends: Any) -> None:
    error = sends.slice(gpus=0).explicit_error.call_one().exception(timeout=EVENT_S)
    assert "ValueError: by the port" in str(error)


def test_a_port_whose_receiver_is_gone_harms_nobody(sends: Any, failures: Failures) -> None:
    opened, receiver = Channel.open()
    port = pickle.loads(pickle.dumps(opened))
    # The original holds the inbox, too.
    del opened, receiver
    one = sends.slice(gpus=0)
    one.send_to.call_one(port, 1, 2).get(timeout=EVENT_S)
    assert one.rank.call_one().get(timeout=EVENT_S) == 0
    assert failures.seen == []


def test_answers_of_a_stopped_mesh_to_a_port_are_errors(sends: Any) -> None:
    sends.stop().get(timeout=EVENT_S)
    port, receiver = Channel.open()
    send(sends.slice(gpus=0).rank, (), {}, port)
    with pytest.raises(SupervisionError, match="stopped"):
        receiver.recv().get(timeout=EVENT_S)


def test_a_receiver_stays_where_it_is() -> None:
    with pytest.raises(TypeError, match="receives for the actor that opened it"):
        pickle.dumps(Channel.open()[1])


def test_send_takes_all_or_choose(sends: Any) -> None:
    port, receiver = Channel.open_ranked()
    send(sends.rank, (), {}, port, "choose")
    rank, value = receiver.recv().get(timeout=EVENT_S)
    assert value == rank * 10
    with pytest.raises(ValueError, match="'all' or 'choose'"):
        send(sends.rank, (), {}, port, "any")
