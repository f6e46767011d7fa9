"""Uses servers as an agent framework does, without a model: `frameworks.py NAME TARGETS`.

TARGETS is JSON: a map of `{"url", "headers"}` or `{"command", "args"}`. Commands come as lines of JSON on stdin, `{"on",
"do": "list"}` or `{"on", "do": "call", "tool", "arguments", "times"}`, and each is answered with a line of JSON. One
connection per target for all of them.
"""

import asyncio
import contextlib
import json
import sys
import warnings

warnings.simplefilter("ignore")


def result(texts, images=0, error=False):
    return {"text": " ".join(texts), "images": images, "error": error}


def of_mcp(outcome):
    """Converts the result of the MCP SDK."""
    texts = [part.text for part in outcome.content if part.type == "text"]
    images = sum(part.type == "image" for part in outcome.content)
    return result(texts, images, bool(outcome.isError))


@contextlib.asynccontextmanager
async def openai_agents(target):
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp, MCPUtil

    if "url" in target:
        made = MCPServerStreamableHttp(params=target, client_session_timeout_seconds=120)
    else:
        made = MCPServerStdio(params=target, client_session_timeout_seconds=120)
    async with made as server:

        async def listed():
            tools = await server.list_tools()
            for tool in tools:
                # Raises if the schema cannot be made strict.
                if "/mcp/strict" in target.get("url", ""):
                    from agents.strict_schema import ensure_strict_json_schema

                    ensure_strict_json_schema(json.loads(json.dumps(tool.inputSchema)))
                MCPUtil.to_function_tool(tool, server, convert_schemas_to_strict=True)
            return [tool.name for tool in tools]

        async def call(tool, arguments):
            return of_mcp(await server.call_tool(tool, arguments))

        yield listed, call


@contextlib.asynccontextmanager
async def langchain(target):
    from langchain_core.tools import ToolException
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    transport = {"transport": "streamable_http", **target} if "url" in target else {"transport": "stdio", **target}
    async with MultiServerMCPClient({"s": transport}).session("s") as session:
        tools = {}

        async def listed():
            tools.update({tool.name: tool for tool in await load_mcp_tools(session)})
            return list(tools)

        async def call(tool, arguments):
            try:
                message = await tools[tool].ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
            except ToolException as error:
                return result([str(error)], error=True)
            parts = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            return result(texts, sum(part["type"] == "image" for part in parts), message.status == "error")

        yield listed, call


@contextlib.asynccontextmanager
async def pydantic_ai(target):
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai import BinaryContent, ModelRetry
    from pydantic_ai.mcp import MCPToolset

    transport = StreamableHttpTransport(**target) if "url" in target else StdioTransport(**target)
    async with MCPToolset(transport) as toolset:

        async def listed():
            return [tool.name for tool in await toolset.list_tools()]

        async def call(tool, arguments):
            try:
                outcome = await toolset.direct_call_tool(tool, arguments)
            except ModelRetry as error:
                return result([str(error)], error=True)
            parts = outcome if isinstance(outcome, list) else [outcome]
            images = [part for part in parts if isinstance(part, BinaryContent)]
            return result([str(part) for part in parts if part not in images], len(images))

        yield listed, call


@contextlib.asynccontextmanager
async def google_adk(target):
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
    from mcp import StdioServerParameters

    if "url" in target:
        params = StreamableHTTPConnectionParams(**target, timeout=120)
    else:
        params = StdioConnectionParams(server_params=StdioServerParameters(**target), timeout=120)
    toolset = McpToolset(connection_params=params)
    tools = {}

    async def listed():
        tools.update({tool.name: tool for tool in await toolset.get_tools()})
        return list(tools)

    async def call(tool, arguments):
        outcome = await tools[tool].run_async(args=arguments, tool_context=None)
        parts = outcome.get("content", [])
        texts = [part["text"] for part in parts if part["type"] == "text"] or [str(outcome.get("error", ""))]
        images = sum(part["type"] == "image" for part in parts)
        return {**result(texts, images, bool(outcome.get("isError") or outcome.get("error"))),
                "bytes": len(json.dumps(outcome))}

    try:
        yield listed, call
    finally:
        await toolset.close()


@contextlib.asynccontextmanager
async def semantic_kernel(target):
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin
    from semantic_kernel.contents import ImageContent, TextContent

    kind = MCPStreamableHttpPlugin if "url" in target else MCPStdioPlugin
    async with kind(name="s", request_timeout=120, load_prompts=False, **target) as plugin:

        async def listed():
            added = Kernel().add_plugin(plugin)
            return list(added.functions)

        async def call(tool, arguments):
            parts = await plugin.call_tool(tool, **arguments)
            texts = [part.text for part in parts if isinstance(part, TextContent)]
            # The framework passes the text of an error on, and drops the flag.
            return result(texts, sum(isinstance(part, ImageContent) for part in parts))

        yield listed, call


async def main(name, targets):
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        opened = {key: await stack.enter_async_context(globals()[name](target)) for key, target in targets.items()}
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            listed, call = opened[command["on"]]
            try:
                if command["do"] == "list":
                    answer = {"tools": sorted(await listed())}
                else:
                    calls = [call(command["tool"], command["arguments"]) for _ in range(command.get("times", 1))]
                    answer = {"results": await asyncio.gather(*calls)}
            except Exception as error:
                answer = {"exception": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
