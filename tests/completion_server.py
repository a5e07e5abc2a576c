"""A small HTTP server with OpenAI's interface, which fails as it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_S = 3.0

# What a request is answered with: a status, headers and a body; or "hang" or "cut".
Answer = tuple[int, dict[str, str], Any] | str


def completions(request: dict[str, Any], *, count: int | None = None) -> Answer:
    """What a server that can do everything answers; the texts tell prompt and seed."""
    is_chat = "messages" in request
    prompt = request["messages"][-1]["content"] if is_chat else request["prompt"]
    choices: list[dict[str, Any]] = []
    for i in range(request["n"] if count is None else count):
        seed = None if request.get("seed") is None else request["seed"] + i
        text = f"{prompt}|{seed}"
        content = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        choices.append({"index": i, "finish_reason": "stop", **content})
        if request.get("return_token_ids"):
            choices[-1]["token_ids"] = [0] * (i + 1)
    choices.reverse()  # the order is not promised
    usage = {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8}
    return 200, {}, {"id": "x", "model": "m", "choices": choices, "usage": usage}


def refusal(status: int, message: str, **headers: str) -> Answer:
    return status, headers, {"error": {"message": message, "code": status}}


class CompletionServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], owner: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.owner = owner
        self.models: list[str] = ["tiny", "other"]
        self.lists = True  # whether it has a list of models
        self.key: str | None = None
        self.limit = 100
        self.requests: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.now = self.most = 0  # requests at a time
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CompletionServer

    def do_GET(self) -> None:
        self.server.calls[self.path] += 1
        if self.server.key and self.headers["Authorization"] != f"Bearer {self.server.key}":
            self._reply(refusal(401, "wrong key"))
        elif self.path == "/version":
            self._reply((200, {}, {"version": "9.9"}))
        elif self.path != "/v1/models" or not self.server.lists:
            self._reply(refusal(404, "Not Found"))
        else:
            entries = [
                {"id": name, "object": "model", "created": 0, "owned_by": self.server.owner}
                | ({"max_model_len": self.server.limit} if self.server.owner == "vllm" else {})
                for name in self.server.models
            ]
            self._reply((200, {}, {"object": "list", "data": entries}))

    def do_POST(self) -> None:
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.calls[self.path] += 1
        if self.path == "/tokenize":
            text = request.get("prompt") or request["messages"][-1]["content"]
            self._reply((200, {}, {"count": len(text)}))
            return
        with server.lock:
            server.now += 1
            server.most = max(server.most, server.now)
            server.requests.append(request)
        try:
            self._reply(server.answer(request))
        finally:
            with server.lock:
                server.now -= 1

    def _reply(self, answer: Answer) -> None:
        if answer == "hang":
            self.server.ended.wait(HANG_S)
            answer = "cut"
        if isinstance(answer, str):
            self.close_connection = True
            return
        status, headers, body = answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data))} | headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving(
    answer: Callable[[dict[str, Any]], Answer] = completions, owner: str = "someone"
) -> Iterator[CompletionServer]:
    server = CompletionServer(answer, owner)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()


def slowly(seconds: float) -> Callable[[dict[str, Any]], Answer]:
    def answer(request: dict[str, Any]) -> Answer:
        time.sleep(seconds)
        return completions(request)

    return answer
