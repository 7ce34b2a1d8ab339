"""As much HTTP/1.1 as inference clients speak, on asyncio: bodies by length, answers whole or in events."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, Awaitable, Callable, Dict, NamedTuple, Optional

HEAD_LIMIT_BYTES = 64 << 10
BODY_LIMIT_BYTES = 8 << 20
DONE = "[DONE]"


class HttpError(Exception):
    """An answer with an error status; ``message`` goes into its JSON body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class HttpRequest(NamedTuple):
    """Method, path without its query, and body."""

    method: str
    path: str
    body: bytes
    keep_alive: bool


class Exchange:
    """One connection's streams, as a handler answers on them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.streaming = False

    async def answer(self, status: int, document: Any, keep_alive: bool = True) -> None:
        """A whole answer with a JSON body."""
        body = json.dumps(document).encode()
        self._head(status, "application/json", f"Content-Length: {len(body)}", keep_alive)
        self._writer.write(body)
        await self._writer.drain()

    async def begin_events(self) -> None:
        """The head of a stream of events; the connection closes behind it."""
        self.streaming = True
        self._head(200, "text/event-stream", "Transfer-Encoding: chunked", keep_alive=False)
        await self._writer.drain()

    async def event(self, document: Any) -> None:
        """One event; ``DONE`` stands for itself."""
        text = document if document == DONE else json.dumps(document)
        data = f"data: {text}\n\n".encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end_events(self) -> None:
        """The end of the stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def gone(self) -> None:
        """Returns when the client has closed its side; what it still sends is of no interest."""
        while await self._reader.read(1 << 16):
            pass

    def _head(self, status: int, kind: str, length: str, keep_alive: bool) -> None:
        connection = "keep-alive" if keep_alive else "close"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {kind}", length]
        self._writer.write("\r\n".join([*lines, f"Connection: {connection}", "", ""]).encode("latin-1"))


Handler = Callable[[HttpRequest, Exchange], Awaitable[None]]


async def serve_connection(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer requests of one connection until either side closes it."""
    exchange = Exchange(reader, writer)
    try:
        while request := await _read(reader):
            await _handled(handler, request, exchange)
            if exchange.streaming or not request.keep_alive:
                break
    except HttpError as error:
        await exchange.answer(error.status, _error(error), keep_alive=False)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _handled(handler: Handler, request: HttpRequest, exchange: Exchange) -> None:
    try:
        await handler(request, exchange)
    except HttpError as error:
        if exchange.streaming:
            raise ConnectionError(error.message) from error
        await exchange.answer(error.status, _error(error), request.keep_alive)


def _error(error: HttpError) -> Dict[str, Any]:
    return {"error": {"message": error.message, "code": error.status}}


async def _read(reader: asyncio.StreamReader) -> Optional[HttpRequest]:
    """The next request; None where the client has closed. Raises HttpError for what is no HTTP."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise HttpError(431, f"more than {HEAD_LIMIT_BYTES} bytes of headers") from error
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, f"no HTTP/1 request line: {first[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (li.partition(":") for li in lines)}
    if "transfer-encoding" in headers:
        raise HttpError(501, "Transfer-Encoding of a request is not supported, send Content-Length")
    length = headers.get("content-length", "0")
    if not length.isdigit():
        raise HttpError(400, f"Content-Length {length!r} is no number")
    if int(length) > BODY_LIMIT_BYTES:
        raise HttpError(413, f"body of {length} bytes, at most {BODY_LIMIT_BYTES} are taken")
    body = await reader.readexactly(int(length))
    keep_alive = headers.get("connection", "").lower() != "close" and words[2] != "HTTP/1.0"
    return HttpRequest(words[0], words[1].partition("?")[0], body, keep_alive)
