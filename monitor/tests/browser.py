# SPDX-License-Identifier: BSD-3-Clause
"""A headless chromium, by its own protocol over two pipes: opens pages, runs scripts in them, takes pictures."""
import base64
import json
import os
import select
import signal
import subprocess
import tempfile
import time

ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
             "--hide-scrollbars", "--window-size=1440,900", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank"]


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="outboard-browser-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", "chromium", f"--user-data-dir={self.profile.name}", *ARGUMENTS]
        self.log = open(os.path.join(self.profile.name, "log"), "w")
        self.process = subprocess.Popen(command, pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.number, self.problems = b"", 0, []
        targets = self.call("Target.getTargets", session=None)["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = None
        self.session = self.call("Target.attachToTarget", {"targetId": page["targetId"], "flatten": True}, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def call(self, method, params=None, session="own", seconds=180):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session == "own":
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.receive(end - time.monotonic())
            if answer and answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
        raise RuntimeError(f"{method}: the browser did not answer in {seconds} s")

    def receive(self, seconds):
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, seconds))[0]:
                return None
            data = os.read(self.back, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self.note(message)
        return message

    def note(self, message):
        """Keeps what a person would see in the console as an error."""
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(word.get("value", word.get("description"))) for word in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def open(self, address):
        self.call("Page.navigate", {"url": address})

    def run(self, script):
        answer = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script, seconds=180):
        """Waits until the value of a script is true, and returns the value. A page that is loading may have nothing to
        ask yet."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = self.run(f"(() => {{ try {{ const value = {script}; return value instanceof Node ? true : value; }} catch {{ return null; }} }})()")
            except RuntimeError as error:
                # The page was left while it was asked.
                if "navigated or closed" not in str(error):
                    raise
                value = None
            if value:
                return value
            time.sleep(0.1)
        raise RuntimeError(f"not within {seconds} s: {script}; the page says: {self.run('document.body.innerText')[-700:]}")

    def picture(self, path):
        data = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        # Chromium's helpers may still write into the profile.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.log.close()
        self.profile.cleanup()
