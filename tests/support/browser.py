"""A headless Chromium over its debugging pipe: open a page, run script, press keys, take pictures.

Speaks the DevTools protocol over two pipes (NUL-ended JSON), so it needs no package and no port.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
)


def executable() -> str | None:
    """Path of Chromium, or None."""
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    """One Chromium process with one page."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        program = executable()
        assert program is not None
        self.profile = tempfile.mkdtemp(prefix="npu-memplan-chromium-")
        child_in, self.to = os.pipe()
        self.of, child_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        # the protocol wants descriptors 3 and 4; from 10 up the two cannot overwrite each other on the way there
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (child_in, child_out)]

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )  # fmt: skip
        for fd in high:
            os.close(fd)
        os.close(child_in)
        os.close(child_out)
        self.pending = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        self.session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def call(self, method: str, timeout_s: float = 60, **params: Any) -> dict[str, Any]:
        """One command; its result. Events that arrive meanwhile are kept in `events`."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout_s
        while True:
            answer = self._receive(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.pending:
            if not select.select([self.of], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self.of, 1 << 20)
            if not chunk:
                raise RuntimeError(f"Chromium ended with {self.process.poll()}")
            self.pending += chunk
        text, self.pending = self.pending.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, path: Path) -> None:
        """Load a file and wait for its load event."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + 60
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._receive(end))
        self.run("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression (awaited), or an error with its text."""
        out = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in out:
            raise RuntimeError(json.dumps(out["exceptionDetails"])[:2000])
        return out["result"].get("value")

    def frame(self) -> None:
        """Wait until what was requested is drawn."""
        self.run("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def key(self, key: str) -> None:
        text = key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def requests(self) -> list[str]:
        """Addresses requested since `open`."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def errors(self) -> list[str]:
        """Exceptions and error messages of the page since `open`."""
        bad = [str(e["params"]) for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        entries = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return bad + [e["text"] for e in entries if e["level"] == "error"]

    def rectangles(self) -> list[list[Any]]:
        """Rectangles of a report, computed back from their pixels: [buffer, pool, first, last, low, high], sorted."""
        axes = {a["pool"]: a for a in self.run("npuMemplan.axes()")}
        found = []
        for r in self.run("npuMemplan.rectangles()"):
            a = axes[r["pool"]]
            point = (a["view"][1] - a["view"][0]) / a["width"]
            byte = (a["address"][1] - a["address"][0]) / a["height"]
            first = a["view"][0] + (r["x"] - a["left"]) * point
            high = a["address"][0] + (a["top"] + a["height"] - r["y"]) * byte
            span = (first, first + r["width"] * point, high - r["height"] * byte, high)
            found.append([r["buffer"], r["pool"], *(round(v) for v in span)])
        return sorted(found)

    def picture(self, path: Path, **clip: float) -> None:
        """PNG of the viewport, or of the rectangle x, y, width, height (CSS pixels)."""
        more: dict[str, Any] = {"clip": {**clip, "scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.session = ""
            self.call("Browser.close", timeout_s=5)
        os.close(self.to)
        os.close(self.of)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
