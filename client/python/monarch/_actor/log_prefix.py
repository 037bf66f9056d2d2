"""Names the actor that logs, in every record that a handler gets. `logging` itself is not imported for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from monarch._actor.context import current

if TYPE_CHECKING:
    import logging


def _who_logs() -> str | None:
    context = current.get()
    if context is not None:
        return str(context.actor_instance)
    from monarch._actor import process

    client = process._process  # Logging must not start one.
    return "<root>" if client is not None and client.is_client else None


class _PrefixFilter:
    """Changes a record once, however many handlers get it."""

    def filter(self, record: logging.LogRecord) -> bool:
        from monarch.actor import config

        if config.prefix_python_logs_with_actor and not hasattr(record, "actor_prefix"):
            name = _who_logs()
            if name is not None:
                prefix = f"[actor={name}] "
                record.actor_prefix = prefix
                # Formatters of structured logs insist on an empty message. With arguments it is a %-format, which the
                # name must not add to.
                if record.msg:
                    record.msg = f"{prefix.replace('%', '%%') if record.args else prefix}{record.msg}"
        return True


_filter = _PrefixFilter()


def _install(module: Any) -> None:
    """For the handlers that are there and those that are added."""
    for reference in list(module._handlerList):
        handler = reference()
        if handler is not None:
            handler.addFilter(_filter)
    add = module.Logger.addHandler

    def add_handler(self: logging.Logger, hdlr: logging.Handler) -> None:
        hdlr.addFilter(_filter)
        add(self, hdlr)

    module.Logger.addHandler = add_handler


class _WaitForLogging:
    """A finder that lets the others find `logging`, and acts when it is there, once. It stays where it is: a thread that
    goes through sys.meta_path would miss a finder if one before it went."""

    _done = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "logging" or self._done:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def execute_and_install(module: Any) -> None:
                self._done = True
                execute(module)
                _install(module)

            loader.exec_module = execute_and_install
        return spec


def install() -> None:
    """Once, when the package is imported."""
    if "logging" in sys.modules:
        import logging  # Another thread may be at it still.

        _install(logging)
    else:
        sys.meta_path.insert(0, _WaitForLogging())


install()
