"""A small agent with two faces: an HTTP server, and a command that answers one prompt.

python small_agent.py --serve           prints its URL, then answers POST /invoke until stopped
python small_agent.py --prompt "..."    prints the answer to one prompt
"""

import argparse
import contextlib
import json
import operator
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CAPITALS = {
    "France": "Paris",
    "法国": "Paris",
    "Japan": "Tokyo",
    "日本": "Tokyo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
}
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def answer(question):
    for country, capital in CAPITALS.items():
        if country in question:
            return capital
    sum_asked = re.search(r"(\d+)\s*([-+*])\s*(\d+)", question)
    if sum_asked:
        left, sign, right = sum_asked.groups()
        return str(OPERATIONS[sign](int(left), int(right)))
    return "I do not know."


class Invoke(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together: sent apart, the body waits 40 ms for an ACK

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"answer": answer(asked["input"])}).encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Invoke)
    with contextlib.suppress(KeyboardInterrupt):
        print("http://127.0.0.1:{}/invoke".format(server.server_address[1]), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--prompt", default="")
    options = parser.parse_args()
    if options.serve:
        serve()
    else:
        print(answer(options.prompt))
