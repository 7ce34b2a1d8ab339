"""What stands before Prefect's own application: it turns away what is not for this server or its page.

Prefect asks for login and CSRF token itself. It does not look at the Host header (DNS rebinding), and does
what a foreign page asks, only without the headers that let it read the answer. Both are refused here.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

CHANGES = ("POST", "PUT", "PATCH", "DELETE")
POLICY_VIOLATION = 1008


def behind_front_door(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """``app``, reachable by the host names of ``origins`` (``scheme://host[:port]``) and from their pages.

    Another Host is answered with 400, another Origin with 403, a change without login with 401. A request
    without Origin does not come from a page.
    """
    allowed = frozenset(origins)
    hosts = sorted({urlsplit(origin).hostname or "" for origin in allowed})
    return TrustedHostMiddleware(_OwnOrigin(app, allowed), allowed_hosts=hosts, www_redirect=False)


class _OwnOrigin:
    """Refuses what a page of another origin sent, web sockets included: browsers let those pass.

    A change without login is answered with 401 here: Prefect would ask for the CSRF token first.
    """

    def __init__(self, app: ASGIApp, allowed: frozenset[str]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._refusal(scope):
            return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """What to answer instead of passing the request on; None where it may pass."""
        if scope["type"] not in ("http", "websocket"):
            return None
        headers = Headers(scope=scope)
        if any(origin not in self._allowed for origin in headers.getlist("origin")):
            if scope["type"] == "websocket":
                return WebSocketClose(code=POLICY_VIOLATION)
            return PlainTextResponse("this page may not use the server", status_code=403)
        if scope.get("method") in CHANGES and "authorization" not in headers:
            return PlainTextResponse("log in first", status_code=401)
        return None
