"""Arguments, results and classes as bytes, with large buffers beside them."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from monarch import _runtime
from monarch._actor import torch_storage
from monarch._config.layers import layers

# Smaller buffers cost less inside the stream than a part of their own.
_OUT_OF_BAND_MIN = 1024
_PLAIN = frozenset((int, float, str, bytes, bool, type(None), complex))


# Meta of a value with meshes or ports in it.
REFERS = _runtime.encode_value(True)


class Reference:
    """What stands for something elsewhere. A value with such parts is loaded when it arrives, and not when it is first
    looked at: its references belong to who receives it."""

    __slots__ = ()


class _NeedsCloudpickle(Exception):
    pass


def _importable(obj: Any) -> bool:
    """Whether another process finds the class or function by its name."""
    module = getattr(obj, "__module__", None)
    if module is None or module == "__main__" or "<locals>" in obj.__qualname__:
        return False
    cloudpickle = sys.modules.get("cloudpickle.cloudpickle")
    return cloudpickle is None or not _registered_by_value(cloudpickle, module)


def _registered_by_value(cloudpickle: ModuleType, module: str) -> bool:
    by_value = getattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", ())
    return any(module == name or module.startswith(name + ".") for name in by_value)


class _FastPickler(pickle.Pickler):
    """The standard pickler, which gives up on what only cloudpickle can send."""

    refers = False  # whether a mesh or a port was met

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, FunctionType)):
            if not _importable(obj):
                raise _NeedsCloudpickle
        elif isinstance(obj, ModuleType):
            raise _NeedsCloudpickle
        elif type(obj) in torch_storage.types:
            return torch_storage.reduce(obj)
        elif isinstance(obj, Reference):
            self.refers = True
        return NotImplemented


def _keep_in(buffers: list[Any]) -> Callable[[pickle.PickleBuffer], bool]:
    """A pickler's callback: takes large buffers, and leaves the others in the stream."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < _OUT_OF_BAND_MIN:
            return True
        buffers.append(view)
        return False

    return keep


def dumps(obj: Any) -> list[Any]:
    """The stream and then its out-of-band buffers; raises what pickling raises."""
    return _within_limit(_dumps(obj))


def _dumps(obj: Any) -> list[Any]:
    return _dumps_noting(obj)[1]


def _dumps_noting(obj: Any) -> tuple[bool, list[Any]]:
    """Also whether meshes or ports are in it."""
    buffers: list[Any] = []
    out = io.BytesIO()
    if "torch" in sys.modules and not torch_storage.types:
        torch_storage.learn_types()
    pickler = _FastPickler(out, 5, buffer_callback=_keep_in(buffers))
    try:
        pickler.dump(obj)
    except (_NeedsCloudpickle, pickle.PicklingError, AttributeError, TypeError):
        return _cloud_dumps(obj)
    return pickler.refers, [out.getbuffer(), *buffers]


def _cloud_dumps(obj: Any) -> tuple[bool, list[Any]]:
    from monarch._actor.cloud_pickler import CloudPickler

    buffers: list[Any] = []
    out = io.BytesIO()
    pickler = CloudPickler(out, 5, _keep_in(buffers))
    pickler.dump(obj)
    return pickler.refers, [out.getbuffer(), *buffers]


def _within_limit(parts: list[Any]) -> list[Any]:
    # What the short ways of the native module make is smaller than any sensible limit, and not looked at.
    size = sum(len(part) if type(part) is bytes else part.nbytes for part in parts)
    limit = layers.effective["codec_max_frame_length"]
    if size > limit:
        from monarch._actor.errors import SupervisionError

        raise SupervisionError(
            f"rejecting oversize frame: len={size} > max={limit}. Send less at once, or raise CODEC_MAX_FRAME_LENGTH: "
            "the environment variable HYPERACTOR_CODEC_MAX_FRAME_LENGTH, or "
            "monarch.configure(codec_max_frame_length=...)"
        )
    return parts


def dumps_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """As dumps((args, kwargs)), with short ways for plain arguments."""
    plain = _runtime.dumps_plain((args, kwargs))
    if plain is not None:
        return [plain]
    if not kwargs:
        for arg in args:
            if type(arg) not in _PLAIN:
                break
        else:
            return _within_limit([pickle.dumps((args, kwargs), 5)])
    try:
        parts = _dumps((args, kwargs))
    except Exception as error:
        from monarch._actor.unpicklable import cannot_pickle_call

        raise cannot_pickle_call(error, "", args, kwargs, _dumps) from None
    return _within_limit(parts)


def copied(parts: list[Any]) -> list[Any]:
    """With buffers of their own: what is sent later is as it was when it was pickled, whatever its owner does."""
    return [parts[0], *(bytes(part) for part in parts[1:])]


def dumps_creation(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], *more: Any) -> list[Any]:
    """As dumps((cls, args, kwargs, *more)), and copied: it is sent when the processes are there, and at each restart."""
    try:
        parts = _dumps((cls, args, kwargs, *more))
    except Exception as error:
        from monarch._actor.unpicklable import cannot_pickle, cannot_pickle_call

        explained = cannot_pickle_call(error, f"{cls.__qualname__}.__init__", args, kwargs, _dumps)
        if explained is error:
            explained = cannot_pickle(error, f"class {cls.__qualname__}", cls, _dumps)
        raise explained from None
    return copied(_within_limit(parts))


def dumps_value(value: Any) -> tuple[bytes, list[Any]]:
    """As dumps, with short ways for plain values; and the answer's meta: REFERS if meshes or ports are in it."""
    plain = _runtime.dumps_plain(value)
    if plain is not None:
        return b"", [plain]
    if type(value) in _PLAIN:
        return b"", _within_limit([pickle.dumps(value, 5)])
    try:
        refers, parts = _dumps_noting(value)
    except Exception as error:
        from monarch._actor.unpicklable import cannot_pickle

        raise cannot_pickle(error, "the value", value, _dumps) from None
    return REFERS if refers else b"", _within_limit(parts)


def loads(parts: Sequence[memoryview] | Sequence[bytes]) -> Any:
    """What dumps made. Buffers are used where they lie, unless others see the same bytes."""
    if len(parts) == 1:
        return _runtime.loads_plain(parts[0], pickle.loads)
    buffers = [bytearray(part) if memoryview(part).readonly else part for part in parts[1:]]
    return pickle.loads(parts[0], buffers=buffers)
