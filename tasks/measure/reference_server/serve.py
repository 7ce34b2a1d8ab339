"""Start, listen, stop: the server's life from its flags to its exit code."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from functools import partial
from typing import List

import options as server_options
from guard import Guard, Stopped
from http_server import HEAD_LIMIT_BYTES, serve_connection
from options import OptionError
from routes import Routes

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
PARENT_CHECK_S = 0.5


def main(arguments: List[str]) -> int:
    """Serve until a signal comes or the parent dies; returns an EXIT_ constant.

    A server that fails while it loads or steps ends itself with EXIT_FAILED, see ``worker``.
    """
    try:
        options = server_options.parse(arguments)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_REFUSED
    try:
        guard = Guard(options.parent)
        return asyncio.run(_serve(options, guard))
    except Stopped as stopped:
        print(f"stopped: {stopped}", flush=True)
        return EXIT_STOPPED
    except OSError as error:
        print(f"error: port {options.port}: {error}", file=sys.stderr)
        return EXIT_FAILED


async def _serve(options: argparse.Namespace, guard: Guard) -> int:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    routes = Routes(options)
    server = await asyncio.start_server(
        partial(serve_connection, routes), "127.0.0.1", options.port, limit=HEAD_LIMIT_BYTES
    )
    port = server.sockets[0].getsockname()[1]
    print(f"listening on http://127.0.0.1:{port}, pid {os.getpid()}", flush=True)
    routes.worker.start()
    while not stop.is_set():
        guard.check()
        try:
            await asyncio.wait_for(stop.wait(), PARENT_CHECK_S)
        except asyncio.TimeoutError:
            continue
    print("stopped: a signal asked for it", flush=True)
    os._exit(EXIT_STOPPED)
