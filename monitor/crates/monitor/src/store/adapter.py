# SPDX-License-Identifier: BSD-3-Clause
"""ClickHouse's HTTP form over chDB: POST /?query=SQL&param_NAME=VALUE with data in the body, or SQL as the body. Settings stand in
the SQL (SETTINGS); a parameter that would be one is refused. An error has ClickHouse's code, as ClickHouse sends it.

Usage: adapter.py FOLDER; the first line of standard input is the key that every request must bring. Prints the port. Ends
with its standard input, so it never outlives who started it. chDB loses work that several threads give it: one has it.
"""
import hmac
import http.server
import os
import queue
import re
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
            answers.put((200, opened.query(sql, params=params).bytes(), None))
        except Exception as error:
            code = re.search(r"Code: (\d+)\. DB::", str(error))
            answers.put((500, str(error).encode(), code[1] if code else "1002"))


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self):
        given = self.headers.get("X-ClickHouse-Key", "")
        if not hmac.compare_digest(given.encode(), key.encode()):
            return self.answer(403, b"wrong key")
        form = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        query = form.pop("query", None)
        strange = [name for name in form if not name.startswith("param_")]
        if strange:
            return self.answer(400, f"{strange[0]}: a setting belongs into the SQL".encode(), "115")
        params = {name[6:]: value for name, value in form.items()}
        answers = queue.Queue()
        work.put((f"{query}\n{body}" if query else body, params, answers))
        self.answer(*answers.get())

    def answer(self, status, data, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
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
