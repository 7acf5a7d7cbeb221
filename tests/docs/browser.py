"""Chromium without a screen, driven over a pipe by its DevTools protocol; no package is needed for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), "")
"""Empty if it is not installed."""
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")


class Tab:
    """A tab, and what it has complained of or requested from elsewhere since it was opened."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write, self.rest, self.sent = os.fdopen(read, "rb", buffering=0), write, b"", 0
        self.session, self.loads = "", 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.sent:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            piece = self.read.read(1 << 16)
            assert piece, "Chromium has ended"
            self.rest += piece
        first, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loads += 1
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(parameters["args"])[:500])
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            self.requests += [url] if not url.startswith(("file:", "data:", "blob:")) else []
        return message

    def open(self, page: Path, width: int) -> None:
        """Load a file in a window of `width` pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        before = self.loads
        self.call("Page.navigate", url=page.as_uri())
        while self.loads == before:
            self._next()

    def value(self, expression: str) -> Any:
        """What a JavaScript expression, or the promise that it makes, gives."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """A tab of a new Chromium whose profile is the empty folder `profile`."""
    (child_read, write), (read, child_write) = os.pipe(), os.pipe()
    # The protocol has fixed descriptors: 3 to read from and 4 to write to.
    command = f'exec "$0" "$@" 3<&{child_read} 4>&{child_write}'
    process = subprocess.Popen(["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
                               pass_fds=(child_read, child_write), stderr=subprocess.DEVNULL)
    for descriptor in (child_read, child_write):
        os.close(descriptor)
    tab = Tab(read, write)
    try:
        yield tab
    finally:
        process.kill()
        process.wait()
        tab.read.close()
        os.close(write)
