"""What the server answers, path by path."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, List, Tuple

import completions
from completions import MODEL, BadRequest
from http_server import DONE, Exchange, HttpError, HttpRequest
from worker import Worker

if TYPE_CHECKING:
    from batching import Request
    from engine import Engine, Token

FORMAT_VARIABLE = "SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT"
PROFILE_STEPS = 5


class Routes:
    """The handler of every request; lives in the event loop's thread, the engine in the worker's."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.worker = Worker(options, self._deliver)
        self._streams: Dict[int, "asyncio.Queue[Token]"] = {}
        self._requests_total = 0
        self._paths: Dict[Tuple[str, str], Callable[[HttpRequest, Exchange], Awaitable[None]]] = {
            ("GET", "/health"): self._health,
            ("GET", "/v1/models"): self._models,
            ("GET", "/server_info"): self._server_info,
            ("POST", "/v1/completions"): self._completions,
        }
        if "no_profile_endpoint" not in options.fault:
            self._paths["POST", "/start_profile"] = self._start_profile
            self._paths["POST", "/stop_profile"] = self._stop_profile

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request. Raises HttpError."""
        handler = self._paths.get((request.method, request.path))
        if handler is None:
            known = any(path == request.path for _, path in self._paths)
            raise HttpError(405 if known else 404, f"no {request.method} {request.path} here")
        if not self.worker.ready:
            raise HttpError(503, "the model is being loaded")
        try:
            await handler(request, exchange)
        except BadRequest as error:
            raise HttpError(400, str(error)) from error

    async def _health(self, request: HttpRequest, exchange: Exchange) -> None:
        await exchange.answer(200, {"status": "ready"}, request.keep_alive)

    async def _models(self, request: HttpRequest, exchange: Exchange) -> None:
        model = {"id": MODEL, "object": "model", "max_model_len": self._engine.shape.context_tokens}
        await exchange.answer(200, {"object": "list", "data": [model]}, request.keep_alive)

    async def _server_info(self, request: HttpRequest, exchange: Exchange) -> None:
        document = await self._in_engine(lambda engine: server_info(engine, self._options))
        await exchange.answer(200, document, request.keep_alive)

    async def _completions(self, request: HttpRequest, exchange: Exchange) -> None:
        shape, cache = self._engine.shape, self._engine.cache
        most = min(shape.context_tokens, cache.capacity_tokens)
        asked = completions.parse(request.body, shape.vocabulary, most)
        from batching import Request

        self._requests_total += 1
        number = self._requests_total
        tokens: "asyncio.Queue[Token]" = asyncio.Queue()
        self._streams[number] = tokens
        wanted = Request(asked.prompt, asked.max_tokens, asked.ignore_eos, number)
        self.worker.submit(wanted)
        answer = asyncio.ensure_future(self._answer(wanted, asked, tokens, exchange, request.keep_alive))
        # A client that sends before it has its answer would lose a byte; none of ours does.
        gone = asyncio.ensure_future(exchange.gone()) if asked.stream else None
        try:
            await asyncio.wait([task for task in (answer, gone) if task], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
        finally:
            del self._streams[number]
            for task in (answer, gone):
                if task:
                    task.cancel()
            if wanted.finish_reason is None:
                print(f"request {number}: the client is gone after {len(wanted.output)} tokens", flush=True)
                self.worker.abort(wanted)

    async def _answer(
        self,
        wanted: "Request",
        asked: completions.Asked,
        tokens: "asyncio.Queue[Token]",
        exchange: Exchange,
        keep_alive: bool,
    ) -> None:
        if asked.stream:
            await exchange.begin_events()
        produced: List[int] = []
        reason = None
        while reason is None:
            token = await tokens.get()
            produced.append(token.token)
            reason = token.finish_reason
            if asked.stream:
                await exchange.event(completions.chunk(wanted.number, [token.token], reason))
        usage = completions.usage(len(asked.prompt), len(produced))
        if not asked.stream:
            whole = completions.chunk(wanted.number, produced, reason)
            await exchange.answer(200, {**whole, "usage": usage}, keep_alive)
            return
        if asked.include_usage:
            last = completions.chunk(wanted.number, [], reason)
            await exchange.event({**last, "choices": [], "usage": usage})
        await exchange.event(DONE)
        await exchange.end_events()

    async def _start_profile(self, request: HttpRequest, exchange: Exchange) -> None:
        fields = completions.json_object(request.body)
        folder = fields.get("output_dir")
        if not isinstance(folder, str) or not folder:
            raise BadRequest("output_dir: must be the folder that the traces go to")
        steps = completions.integer(fields, "num_steps", PROFILE_STEPS)
        if not completions.boolean(fields, "profile_by_stage"):
            raise BadRequest("profile_by_stage: only true is served, one trace a stage")
        await self._profiled(lambda engine: engine.profile.start(Path(folder), steps))
        await exchange.answer(200, {"message": "profile started"}, request.keep_alive)

    async def _stop_profile(self, request: HttpRequest, exchange: Exchange) -> None:
        files = await self._profiled(lambda engine: engine.profile.stop())
        await exchange.answer(200, {"message": "profile stopped", "files": files}, request.keep_alive)

    async def _profiled(self, function: Callable[["Engine"], Any]) -> Any:
        from stage_profile import ProfileError

        try:
            return await self._in_engine(function)
        except ProfileError as error:
            raise BadRequest(str(error)) from error
        except OSError as error:
            raise BadRequest(f"output_dir: {error}") from error

    async def _in_engine(self, function: Callable[["Engine"], Any]) -> Any:
        """The result of ``function``, called with the engine between two steps."""
        result: "asyncio.Future[Any]" = self._loop.create_future()

        def call(engine: "Engine") -> None:
            try:
                value = function(engine)
            except Exception as error:
                self._loop.call_soon_threadsafe(result.set_exception, error)
            else:
                self._loop.call_soon_threadsafe(result.set_result, value)

        self.worker.call(call)
        return await result

    @property
    def _engine(self) -> "Engine":
        assert self.worker.engine is not None
        return self.worker.engine

    def _deliver(self, tokens: List["Token"]) -> None:
        """From the engine's thread: one wake-up of the loop a step."""
        self._loop.call_soon_threadsafe(self._delivered, tokens)

    def _delivered(self, tokens: List["Token"]) -> None:
        for token in tokens:
            if stream := self._streams.get(token.request.number):
                stream.put_nowait(token)


def server_info(engine: "Engine", options: argparse.Namespace) -> Dict[str, Any]:
    """What the server is and has done; the proof of the arm is taken from the loaded weights themselves."""
    import torch

    return {
        "arm": options.arm,
        "quantization": engine.quantization,
        "dtype": "bfloat16",
        "device": options.device,
        "evidence": engine.backend.evidence(),
        "weight_formats": engine.loader.formats,
        "other_weight_formats": engine.loader.other_formats,
        "dispatched_operators": engine.dispatched,
        "environment": {FORMAT_VARIABLE: os.environ.get(FORMAT_VARIABLE)},
        "pid": os.getpid(),
        "model": {"name": MODEL, **engine.shape._asdict()},
        "weight_bytes": engine.loader.size_bytes,
        "kv_capacity_tokens": engine.cache.capacity_tokens,
        "kv_free_tokens": engine.cache.free_tokens,
        "max_running_requests": options.max_running_requests,
        "max_prefill_tokens": options.max_prefill_tokens,
        "torch": torch.__version__,
        "components": engine.components,
        "threads": options.threads,
        "seed": options.seed,
        "waiting_requests": len(engine.scheduler.waiting),
        "running_requests": len(engine.scheduler.running),
        **engine.statistics.document(),
        "expert_tokens": engine.decoder.expert_tokens,
        "accept_length": None,
        "accept_rate": None,
        "verify_step_ns": None,
        "profile": {"active": engine.profile.active, "files": engine.profile.files},
    }
