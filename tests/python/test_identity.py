"""Who runs here, as values and as text."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from conftest import EVENT_S
from monarch._actor.identity import ActorId
from monarch.actor import (
    Actor,
    ProcId,
    Uid,
    context,
    current_actor_name,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)


class Who(Actor):
    def __init__(self) -> None:
        self.in_init = dict(current_rank())

    @endpoint
    def describe(self) -> dict[str, Any]:
        instance = context().actor_instance
        return {
            "text": str(instance),
            "creator": instance.creator,
            "rank": dict(instance.rank),
            "message_rank": dict(current_rank()),
            "in_init": self.in_init,
            "id": str(instance.actor_id),
            "name": instance.name,
            "class": instance.class_name,
            "current": current_actor_name(),
            "same_proc": instance.proc_id == instance.actor_id.proc_id,
            "procs": dict(instance.proc_mesh.sizes),
            "proc": len(instance.proc),
        }

    @endpoint
    def nested(self) -> Any:
        return this_proc().spawn("inner", Who).describe.call_one().get()


@pytest.fixture
def who(spawn_procs: Any) -> Any:
    return spawn_procs({"hosts2": 2, "gpus": 2}).spawn("who", Who)


def test_an_instance_prints_the_chain_of_its_creators(who: Any) -> None:
    one = who.slice(hosts2=1, gpus=0)
    outer = "<root>.<test_identity.Who who{'hosts2': 1/2, 'gpus': 0/2}>"
    assert one.describe.call_one().get(timeout=EVENT_S)["text"] == outer
    inner = one.nested.call_one().get(timeout=EVENT_S)
    assert inner["text"] == f"{outer}.<test_identity.Who inner>"
    creator = inner["creator"]
    assert (creator.name, creator.class_name, dict(creator.rank)) == (
        "who",
        "test_identity.Who",
        {"hosts2": 1, "gpus": 0},
    )
    assert (str(creator), str(creator.creator), creator.creator.creator) == (outer, "<root>", None)
    assert creator.creator.name == "root"
    assert len(creator.proc) == 1


def test_message_rank_is_that_of_the_senders_slice_and_rank_that_of_the_spawn(who: Any) -> None:
    found = who.slice(hosts2=1).describe.call().get(timeout=EVENT_S).item(gpus=1)
    assert found["rank"] == found["in_init"] == {"hosts2": 1, "gpus": 1}
    assert found["message_rank"] == {"gpus": 1}
    assert found["procs"] == {"hosts2": 2, "gpus": 2}
    assert found["proc"] == 1
    assert (found["name"], found["class"]) == ("who", "test_identity.Who")


def test_an_actors_address_prints_and_parses(who: Any) -> None:
    found = who.slice(hosts2=0, gpus=0).describe.call_one().get(timeout=EVENT_S)
    assert found["current"] == found["id"]
    parsed = ActorId.from_string(found["id"])
    assert str(parsed) == found["id"]
    assert (parsed.actor_name, parsed.label, parsed.is_root) == ("who", "who", False)
    assert found["id"] == f"{parsed.uid}.{parsed.proc_name}@{parsed.addr}"
    assert parsed.pid == parsed.uid
    assert parsed.proc_id == f"{parsed.proc_label}@{parsed.addr}"
    assert found["same_proc"]
    with pytest.raises(ValueError, match="is no address of an actor"):
        ActorId.from_string("nothing")


def test_the_root_client_has_no_creator_and_no_dimensions() -> None:
    instance = context().actor_instance
    assert (str(instance), instance.creator, instance.class_name) == ("<root>", None, None)
    assert instance.actor_id.is_root
    assert instance.actor_id.actor_name == "client"
    assert (instance.rank.rank, len(instance.rank)) == (0, 0)
    for end in (instance.abort, instance.kill, instance.stop):
        with pytest.raises(RuntimeError, match="this is the client"):
            end()


def test_uids_are_values() -> None:
    labelled, anonymous, singleton = Uid.instance("worker"), Uid.anonymous(), Uid.from_string("logger")
    assert (labelled.label, labelled.is_instance, labelled.is_singleton) == ("worker", True, False)
    assert (anonymous.label, anonymous.is_instance) == (None, True)
    assert (singleton.label, singleton.is_instance, singleton.is_singleton) == ("logger", False, True)
    assert Uid.anonymous() != anonymous
    for uid in (labelled, anonymous, singleton):
        assert Uid.from_string(str(uid)) == uid
        assert pickle.loads(pickle.dumps(uid)) == uid
        proc = ProcId(uid)
        assert (proc.uid, proc.label) == (uid, uid.label)
        assert ProcId.from_string(str(proc)) == proc
        assert pickle.loads(pickle.dumps(proc)) == proc
        assert proc != uid
    assert len({labelled, Uid.from_string(str(labelled))}) == 1
    assert sorted([singleton, labelled])[0] == singleton


@pytest.mark.parametrize("text", ["", "a b", "x<12>", "<zz>", "x<0123456789abcdef>y"])
def test_a_uid_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no uid"):
        Uid.from_string(text)
    with pytest.raises(ValueError, match="is no uid"):
        ProcId.from_string(text)
    with pytest.raises(ValueError, match="a label has"):
        Uid.instance("a b")


class Owner(Actor):
    @endpoint
    def children(self) -> list[list[Any]]:
        """After each step."""
        instance = context().actor_instance
        seen = [[] if instance._children is None else instance._children]
        procs = this_host().spawn_procs()
        seen.append(list(instance._children or ()))
        actors = procs.spawn("child", Who)
        seen.append(list(instance._children or ()))
        assert seen[-1] == [procs, actors]
        procs.stop().get(timeout=EVENT_S)
        assert instance._children is None
        return [[type(child).__name__ for child in step] for step in seen]


def test_an_instance_knows_the_meshes_it_spawned(spawn_procs: Any) -> None:
    owner = spawn_procs().spawn("owner", Owner)
    assert owner.children.call_one().get(timeout=EVENT_S) == [[], ["ProcMesh"], ["ProcMesh", "ActorMesh"]]
