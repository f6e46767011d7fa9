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
    """Converts the result of the MCP SDK, of either generation."""
    texts = [part.text for part in outcome.content if part.type == "text"]
    images = sum(part.type == "image" for part in outcome.content)
    return result(texts, images, bool(outcome.isError if hasattr(outcome, "isError") else outcome.is_error))


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


@contextlib.asynccontextmanager
async def autogen(target):
    from autogen_core import Image
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams

    if "url" in target:
        params = StreamableHttpServerParams(**target)
    else:
        params = StdioServerParams(**target, read_timeout_seconds=120)
    async with McpWorkbench(params) as workbench:

        async def listed():
            return [tool["name"] for tool in await workbench.list_tools()]

        async def call(tool, arguments):
            outcome = await workbench.call_tool(tool, arguments)
            images = [part for part in outcome.result if isinstance(part.content, Image)]
            texts = [part.content for part in outcome.result if part not in images]
            return result(texts, len(images), outcome.is_error)

        yield listed, call


@contextlib.asynccontextmanager
async def mcp_use(target):
    from mcp_use import MCPClient
    from mcp_use.agents.adapters import LangChainAdapter

    client = MCPClient({"mcpServers": {"s": target}})
    session = await client.create_session("s")

    async def listed():
        return [tool.name for tool in await LangChainAdapter().create_tools(client)]

    async def call(tool, arguments):
        return of_mcp(await session.call_tool(tool, arguments))

    try:
        yield listed, call
    finally:
        await client.close_all_sessions()


@contextlib.asynccontextmanager
async def mcp_sdk(target):
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    async with contextlib.AsyncExitStack() as stack:
        if "url" in target:
            http = httpx2.AsyncClient(headers=target["headers"], timeout=120)
            transport = streamable_http_client(target["url"], http_client=await stack.enter_async_context(http))
        else:
            transport = stdio_client(StdioServerParameters(**target))
        client = await stack.enter_async_context(Client(transport))

        async def listed():
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(tool, arguments):
            return of_mcp(await client.call_tool(tool, arguments))

        yield listed, call


@contextlib.asynccontextmanager
async def llama_index(target):
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    if "url" in target:
        client = BasicMCPClient(target["url"], headers=target["headers"], timeout=120)
    else:
        client = BasicMCPClient(target["command"], args=target["args"], timeout=120)
    tools = {}

    async def listed():
        tools.update({tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()})
        return list(tools)

    async def call(tool, arguments):
        outcome = (await tools[tool].acall(**arguments)).raw_output
        return {**of_mcp(outcome), "bytes": len(str(outcome))}

    yield listed, call


@contextlib.asynccontextmanager
async def haystack(target):
    from haystack.tools.errors import ToolInvocationError
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo

    made = StreamableHttpServerInfo(**target) if "url" in target else StdioServerInfo(**target)
    toolset = MCPToolset(made, invocation_timeout=120)
    await asyncio.to_thread(toolset.warm_up)
    tools = {}

    async def listed():
        tools.update({tool.name: tool for tool in toolset})
        return list(tools)

    async def call(tool, arguments):
        try:
            outcome = await asyncio.to_thread(tools[tool].invoke, **arguments)
        except ToolInvocationError as error:
            return result([str(error)], error=True)
        parts = json.loads(outcome)["content"]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        return {**result(texts, sum(part["type"] == "image" for part in parts)), "bytes": len(outcome)}

    try:
        yield listed, call
    finally:
        await asyncio.to_thread(toolset.close)


@contextlib.asynccontextmanager
async def strands(target):
    from mcp import StdioServerParameters, stdio_client
    from strands.tools.mcp import MCPClient

    made = MCPClient(**target) if "url" in target else MCPClient(lambda: stdio_client(StdioServerParameters(**target)))
    with made as client:

        async def listed():
            return [tool.tool_name for tool in await asyncio.to_thread(client.list_tools_sync)]

        async def call(tool, arguments):
            outcome = await client.call_tool_async("1", tool, arguments)
            texts = [part["text"] for part in outcome["content"] if "text" in part]
            images = sum("image" in part for part in outcome["content"])
            return result(texts, images, outcome["status"] == "error")

        yield listed, call


@contextlib.asynccontextmanager
async def agno(target):
    from agno.tools.function import FunctionCall
    from agno.tools.mcp import MCPTools, StreamableHTTPClientParams
    from mcp import StdioServerParameters

    made = StreamableHTTPClientParams(**target, timeout=120) if "url" in target else StdioServerParameters(**target)
    transport = "streamable-http" if "url" in target else "stdio"
    async with MCPTools(server_params=made, transport=transport, timeout_seconds=120) as tools:

        async def listed():
            return list(tools.functions)

        async def call(tool, arguments):
            outcome = await FunctionCall(function=tools.functions[tool], arguments=arguments).aexecute()
            content = outcome.result
            return result([content.content], len(content.images or []))

        yield listed, call


@contextlib.asynccontextmanager
async def smolagents(target):
    from mcp import StdioServerParameters
    from smolagents import MCPClient

    made = {**target, "transport": "streamable-http"} if "url" in target else StdioServerParameters(**target)
    limits = {"client_session_timeout_seconds": 120.0}
    with MCPClient(made, adapter_kwargs=limits, structured_output=False) as all_tools:
        tools = {tool.name: tool for tool in all_tools}

        async def listed():
            return list(tools)

        async def call(tool, arguments):
            outcome = await asyncio.to_thread(tools[tool].forward, **arguments)
            # The framework passes the text of an error on, and drops the flag.
            return result([outcome]) if isinstance(outcome, str) else result([], 1)

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
