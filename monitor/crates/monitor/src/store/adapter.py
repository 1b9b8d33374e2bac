# SPDX-License-Identifier: BSD-3-Clause
"""ClickHouse's HTTP form over chDB: POST /?query=SQL&param_NAME=VALUE with data in the body, or SQL as the body.

Usage: adapter.py FOLDER; the first line of standard input is the key that every request must bring. Prints the port. Ends
with its standard input, so it never outlives who started it. chDB loses work that several threads give it: one has it.
"""
import hmac
import http.server
import os
import queue
import sys
import threading
import urllib.parse

from chdb import session

key = sys.stdin.readline().strip()
work = queue.Queue(maxsize=64)


def serve_session(folder):
    opened = session.Session(folder)
    while True:
        sql, params, answers = work.get()
        try:
            answers.put((200, opened.query(sql, params=params).bytes()))
        except Exception as error:
            answers.put((400, str(error).encode()))


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self):
        given = self.headers.get("X-ClickHouse-Key", "")
        if not hmac.compare_digest(given.encode(), key.encode()):
            return self.answer(403, b"wrong key")
        form = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        query = form.get("query")
        params = {name[6:]: value for name, value in form.items() if name.startswith("param_")}
        answers = queue.Queue()
        work.put((f"{query}\n{body}" if query else body, params, answers))
        self.answer(*answers.get())

    def answer(self, code, data):
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


threading.Thread(target=serve_session, args=(sys.argv[1],), daemon=True).start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
os._exit(0)
