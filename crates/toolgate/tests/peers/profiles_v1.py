"""A client on the Python SDK v1 at the endpoints of profiles: `URL KEY`. Prints the results."""

import asyncio
import json
import sys

import mcp.types as types
from mcp import ClientSession, McpError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.client.websocket import websocket_client

url, key = sys.argv[1:]
headers = {"X-API-Key": key}


async def answer(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def searched(session):
    async def call(tool, **arguments):
        try:
            return (await session.call_tool(tool, arguments)).content[0].text
        except McpError as error:
            return str(error)

    found = json.loads(await call("search_tools", query="add two numbers"))
    described = json.loads(await call("describe_tool", name="get-sum"))
    return {
        "tools": [tool.name for tool in (await session.list_tools()).tools],
        "found": [tool["name"] for tool in found["tools"]],
        "described": sorted(described["inputSchema"]["properties"]),
        "sum": await call("call_tool", name="get-sum", arguments={"a": 2, "b": 3}),
        "text": await call("call_tool", name="get-sum", arguments='{"a": 2, "b": 3}'),
        "elicited": await call("call_tool", name="trigger-elicitation-request", arguments={}),
        "unknown": await call("call_tool", name="get-env", arguments={}),
    }


async def renamed(session):
    async def refused(tool):
        try:
            return (await session.call_tool(tool, {"a": 2, "b": 3})).content[0].text
        except McpError as error:
            return str(error)

    added = await session.call_tool("add", {"a": 2, "b": 3})
    prompt = await session.get_prompt("weather", {"city": "Oslo"})
    return {
        "tools": [tool.name for tool in (await session.list_tools()).tools],
        "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
        "resources": len((await session.list_resources()).resources),
        "sum": added.content[0].text,
        "hints": added.content[-1].text.split(":")[0],
        "unknown": await refused("get-sum"),
        "prompt": prompt.messages[0].content.text,
    }


async def at(transport, work):
    async with transport as streams:
        async with ClientSession(*streams[:2], elicitation_callback=answer) as session:
            await session.initialize()
            return await work(session)


async def main():
    return {
        "find": await at(streamablehttp_client(f"{url}/mcp/find", headers=headers), searched),
        "renamed": await at(streamablehttp_client(f"{url}/mcp/renamed", headers=headers), renamed),
        "sse": await at(sse_client(f"{url}/sse/renamed", headers=headers), renamed),
        # It sends no headers, so it is anonymous.
        "ws": await at(websocket_client(f"ws{url.removeprefix('http')}/ws/renamed"), renamed),
    }


print(json.dumps(asyncio.run(main())))
