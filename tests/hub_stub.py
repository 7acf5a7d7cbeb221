"""A small Hugging Face hub on the loopback address: repositories in memory, one token that may write."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_right"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Its repositories, each a mapping of files, and the requests that it has answered."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """The part of the hub's interface that `vantage push` and hf:// use."""

    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, hub = self.path.partition("?")[0], self.server
        hub.requests.append(f"POST {path}")
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            about = json.loads(body)
            repo = f"{about.get('organization', 'me')}/{about['name']}"
            if repo not in hub.repos:
                hub.repos[repo] = {}
                if about.get("private") or about.get("visibility") == "private":
                    hub.private.add(repo)
            return self.answer({"url": f"{hub.endpoint}/{repo}"})
        repo = "/".join(path.split("/")[3:5])
        if repo not in hub.repos:
            return self.refuse(404, "RepoNotFound")
        if "/preupload/" in path:
            return self.answer({"files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                                          for file in json.loads(body)["files"]]})
        for line in body.splitlines():
            operation: dict[str, Any] = json.loads(line)
            if operation["key"] == "file":
                value = operation["value"]
                hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
        url = f"{hub.endpoint}/{repo}/commit/{COMMIT}"
        return self.answer({"success": True, "commitOid": COMMIT, "commitUrl": url})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, parts = self.server, self.path.partition("?")[0].split("/")
        hub.requests.append(f"{self.command} {self.path}")
        if parts[1:3] == ["api", "models"] and len(parts) == 5:
            repo = "/".join(parts[3:])
            return self.answer({"id": repo, "private": repo in hub.private})
        if parts[1] == "api":  # what is there already, such as .gitignore
            return self.refuse(404, "EntryNotFound")
        repo, revision, name = "/".join(parts[1:3]), parts[4], "/".join(parts[5:])
        if repo not in hub.repos:
            return self.refuse(404, "RepoNotFound")
        if revision not in ("main", "v1", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if name not in hub.repos[repo]:
            return self.refuse(404, "EntryNotFound")
        content = hub.repos[repo][name]
        self.reply(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT})

    def answer(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def refuse(self, status: int, code: str, message: str = "") -> None:
        self.reply(status, b"{}", {"X-Error-Code": code, "X-Error-Message": message})

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
