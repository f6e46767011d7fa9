"""The system of the shop: its orders are an HTTP API (`orders.yaml`), its bikes and its website are tools of MCP.

The API listens on this machine, at the port in `SHOP_PORT`, before the first message is answered.
"""

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stdio import serve, tool

BIKES = [
    {"name": "Tern", "kind": "city", "price": 640, "in_stock": 4},
    {"name": "Swift", "kind": "road", "price": 1480, "in_stock": 1},
    {"name": "Heron", "kind": "city", "price": 890, "in_stock": 0},
    {"name": "Ibex", "kind": "mountain", "price": 1190, "in_stock": 2},
]
ORDERS = {
    1001: {"id": 1001, "customer": "Nora Lind", "bike": "Tern", "total": 640, "state": "delivered", "refunded": 0},
    1002: {"id": 1002, "customer": "Paul Ito", "bike": "Swift", "total": 1480, "state": "paid", "refunded": 0},
    1003: {"id": 1003, "customer": "Omar Diaz", "bike": "Ibex", "total": 1190, "state": "delivered", "refunded": 0},
}
NOTICES = []


@tool(
    "Finds bikes of the shop by kind and price. Use it to see what the shop sells and what is in stock.",
    {
        "kind": {"enum": ["city", "road", "mountain"], "description": "The kind of bike."},
        "max_price": {"type": "number", "description": "The highest price in euros."},
    },
)
def find_bikes(kind=None, max_price=float("inf")):
    return {"bikes": [bike for bike in BIKES if kind in (None, bike["kind"]) and bike["price"] <= max_price]}


@tool(
    "Posts a notice on the public website of the shop, such as other opening hours.",
    {"text": {"type": "string", "description": "The text of the notice."}},
    ["text"],
    read_only=False,
)
def post_notice(text):
    NOTICES.append(text)
    return {"notices": len(NOTICES)}


class Orders(BaseHTTPRequestHandler):
    def respond(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def order(self, pattern):
        match = re.fullmatch(pattern, self.path)
        return ORDERS.get(int(match[1])) if match else None

    def do_GET(self):
        if self.path.partition("?")[0] == "/orders":
            state = re.search(r"[?&]state=(\w+)", self.path)
            found = [order for order in ORDERS.values() if not state or order["state"] == state[1]]
            return self.respond(200, {"orders": found})
        order = self.order(r"/orders/(\d+)")
        return self.respond(200, order) if order else self.respond(404, {"message": "no such order"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        order = self.order(r"/orders/(\d+)/refund")
        if not order:
            return self.respond(404, {"message": "no such order"})
        if order["refunded"] + body["amount"] > order["total"]:
            return self.respond(409, {"message": "the refund is larger than the order"})
        order["refunded"] += body["amount"]
        return self.respond(200, order)

    def log_message(self, format, *args):
        """Prints nothing: stdout belongs to MCP."""


try:
    api = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SHOP_PORT"])), Orders)
    threading.Thread(target=api.serve_forever, daemon=True).start()
except OSError:
    pass  # The API of another process of this project is there already.
serve()
