# SPDX-License-Identifier: BSD-3-Clause
"""A running `outboard monitor` of build/, and requests to it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTBOARD = ROOT / "build/bin/outboard"
# The environment of chDB is made once for all tests.
VENV = ROOT / ".cache/monitor-venv"


def until(what, check, seconds=90):
    """Waits for a state that must come, however long the machine takes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


def authority(folder):
    """Makes an authority of certificates and a certificate for 127.0.0.1. Returns the files of the authority, the certificate
    and its key."""
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl = lambda *words: subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=site", "-keyout", "authority-key.pem", "-out", "authority.pem")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=head", "-keyout", "key.pem", "-out", "request.pem")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "authority.pem", "-CAkey", "authority-key.pem", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "certificate.pem")
    return folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"


class Monitor:
    def __init__(self, env, config="", seconds=300, listen="127.0.0.1:0", store="", begin=lambda monitor: None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="outboard-monitor-"))
        self.file = self.folder / "monitor.toml"
        VENV.parent.mkdir(exist_ok=True)
        self.file.write_text(f'listen = "{listen}"\ndata = "{self.folder}/data"\n{config}\n[store]\nvenv = "{VENV}"\n{store}')
        begin(self)
        self.env = env
        self.errors = open(self.folder / "errors", "w+")
        self.start(seconds)

    def start(self, seconds=300):
        # The simulator's library writes files of its own into the folder in which a program starts.
        self.process = subprocess.Popen([OUTBOARD, "monitor", "--config", self.file], env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=self.folder)
        signal.signal(signal.SIGALRM, lambda *_: self.process.kill())
        signal.alarm(seconds)
        self.address = None
        for line in self.process.stdout:
            found = re.search(r"https?://[0-9.]+:[0-9]+", line)
            if found:
                self.address, self.line = found[0], line
                self.key = (self.folder / "data/key").read_text().strip()
                break
            print(line, end="", flush=True)
        signal.alarm(0)
        if not self.address:
            raise RuntimeError(f"outboard monitor did not start: {self.said()}")

    def said(self):
        return (self.folder / "errors").read_text()

    def store(self):
        """The process of chDB, if it runs. A thread or a child may end during the search."""
        found = []
        for children in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in children.read_text().split() if b"chdb" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        return found[0] if found else None

    def task(self, *words, text=""):
        """Runs one of the monitor's other tasks, such as `add-account`."""
        done = subprocess.run([OUTBOARD, "monitor", "--config", self.file, *words], cwd=self.folder, env=self.env, input=text, text=True, capture_output=True)
        return done.returncode, done.stdout + done.stderr

    def ask(self, path, method="GET", body=None, cookie=None, **headers):
        """Sends a request. Returns status, headers and body of the answer."""
        place = urllib.parse.urlsplit(self.address)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            given["Cookie"] = cookie
        if body is not None and not isinstance(body, bytes):
            body, given["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers, data

    def log_in(self, **given):
        status, headers, data = self.ask("/api/login", "POST", given)
        if status != 200:
            raise RuntimeError(f"no session: {status} {data}")
        return headers["Set-Cookie"].split(";")[0]

    def json(self, path, cookie):
        status, _, data = self.ask(path, cookie=cookie)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {data[:500]}")
        return json.loads(data)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(30)
        self.process.stdout.close()
        return code

    def close(self, keep=False):
        if self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                # The simulator's library waits for a thread of its own at exit, and was seen to wait for ever.
                self.process.kill()
                self.process.wait()
        self.errors.close()
        if not keep:
            self.remove()

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
