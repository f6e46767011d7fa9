"""An MCP server over WebSocket, on the Python SDK v1. Prints its port."""

import socket

import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

server = Server("websocket")


@server.list_tools()
async def list_tools():
    schema = {"type": "object", "properties": {"message": {"type": "string"}}}
    return [types.Tool(name="echo", description="Returns the message.", inputSchema=schema)]


@server.call_tool()
async def call_tool(name, arguments):
    return [types.TextContent(type="text", text="websocket: " + arguments["message"])]


async def endpoint(socket):
    async with websocket_server(socket.scope, socket.receive, socket.send) as (read, write):
        await server.run(read, write, server.create_initialization_options())


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
