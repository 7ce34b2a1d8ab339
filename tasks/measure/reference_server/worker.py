"""The thread that owns the engine: it loads the model, then steps for as long as there are requests."""

from __future__ import annotations

import argparse
import os
import threading
import time
import traceback
from typing import TYPE_CHECKING, Callable, List, Optional

if TYPE_CHECKING:
    from batching import Request
    from engine import Engine, Token

DIED = 70
FORMAT_NAMES = {2: "ND", 29: "FRACTAL_NZ"}


class Worker:
    """``deliver`` is called in this thread with the tokens of every step.

    A failed load or step ends the process: after it nothing that the engine says could be trusted.
    """

    def __init__(self, options: argparse.Namespace, deliver: Callable[[List["Token"]], None]) -> None:
        self._options, self._deliver = options, deliver
        self._wake = threading.Condition()
        self._calls: List[Callable[["Engine"], None]] = []
        self._tokens_total = 0
        self.ready = False
        self.engine: Optional["Engine"] = None

    def start(self) -> None:
        """Begin to load; returns at once."""
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def call(self, function: Callable[["Engine"], None]) -> None:
        """Have ``function`` called with the engine, in its thread, between two steps."""
        with self._wake:
            self._calls.append(function)
            self._wake.notify()

    def submit(self, request: "Request") -> None:
        """Let ``request`` wait for its first step."""
        self.call(lambda engine: engine.scheduler.add(request))

    def abort(self, request: "Request") -> None:
        """Serve ``request`` no longer; its KV is freed before the next step."""
        request.aborted = True
        self.call(lambda engine: engine.scheduler.drop_ended())

    def _run(self) -> None:
        try:
            engine = self._load()
            while True:
                self._step(engine)
        except BaseException:
            traceback.print_exc()
            print("failed: the engine has ended, see the traceback", flush=True)
            os._exit(1)

    def _load(self) -> "Engine":
        start_ns = time.monotonic_ns()
        options = self._options
        print(f"loading: arm {options.arm}, quantization {options.quantization}", flush=True)
        if "crash_at_load" in options.fault:
            raise RuntimeError("crash_at_load was asked for")
        while "never_ready" in options.fault:
            time.sleep(1)
        engine = _engine(options)
        for name, form in {**engine.loader.formats, **engine.loader.other_formats}.items():
            shape = list(engine.loader.shapes[name])
            print(f"weight {name} {shape} format {form} {FORMAT_NAMES.get(form, 'unknown')}", flush=True)
        self.engine = engine
        self.ready = True
        print(f"ready: {(time.monotonic_ns() - start_ns) / 1e9:.2f} s after loading began", flush=True)
        return engine

    def _step(self, engine: "Engine") -> None:
        """Calls that have come, then one step; waits where there is nothing to do."""
        with self._wake:
            calls, self._calls = self._calls, []
        for function in calls:
            function(engine)
        if tokens := engine.step():
            self._faults(tokens)
            self._deliver(tokens)
            return
        with self._wake:
            if not self._calls:
                self._wake.wait()

    def _faults(self, tokens: List["Token"]) -> None:
        fault = self._options.fault
        for token in tokens:
            self._tokens_total += 1
            if token.request.number == fault.get("stall_request"):
                token.request.stalled = True
            if self._tokens_total == fault.get("die_after_tokens"):
                print("die_after_tokens was asked for", flush=True)
                os._exit(DIED)


def _engine(options: argparse.Namespace) -> "Engine":
    """The engine on its device, this thread pinned. Imports torch."""
    from process import prepare_environment
    from registry import backend_of

    backend = backend_of(options.device)
    prepare_environment({}, options.threads, backend.variables("timing", None))
    from engine import Engine, Limits
    from shape import ModelShape

    cpus = backend.open(options.threads)
    print(f"engine: device {options.device}, pinned to CPUs {cpus}", flush=True)
    limits = Limits(
        options.memory_mib << 20,
        options.max_running_requests,
        options.max_prefill_tokens,
        options.kv_capacity_tokens,
    )
    return Engine(backend, ModelShape(), options.seed, options.quantization, limits)
