"""Pet shop API for the `toolgate.yaml` next to this file. Run `python3 shop.py`, then `toolgate tools call get_pet id=1`."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PETS = {"1": {"id": 1, "name": "Mimi", "kind": "cat", "price": 12.5}, "2": {"id": 2, "name": "Rex", "kind": "dog"}}


class Shop(BaseHTTPRequestHandler):
    def respond(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("X-Shop-Key") != "open-sesame":
            return self.respond(401, {"message": "missing or wrong X-Shop-Key"})
        path = self.path.split("?")[0]
        if path == "/v1/pets":
            return self.respond(200, list(PETS.values()))
        pet = PETS.get(path.removeprefix("/v1/pets/"))
        return self.respond(200, pet) if pet else self.respond(404, {"message": "no such pet"})

    def do_POST(self):
        pet = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        pet["id"] = len(PETS) + 1
        PETS[str(pet["id"])] = pet
        return self.respond(201, pet)


ThreadingHTTPServer(("127.0.0.1", 7391), Shop).serve_forever()
