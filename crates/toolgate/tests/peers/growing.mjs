// An MCP server over stdio, on the TypeScript SDK v1, that adds a tool two seconds after its start.
//
// `node growing.mjs SDK`, where SDK is the folder of the SDK's package.

const from = (name) => import(`${process.argv[2]}/dist/esm/server/${name}.js`);
const { McpServer } = await from("mcp");
const { StdioServerTransport } = await from("stdio");

const server = new McpServer({ name: "growing", version: "1.0.0" });
const say = (text) => async () => ({ content: [{ type: "text", text }] });
server.registerTool("first", { description: "Exists from the start." }, say("first"));
await server.connect(new StdioServerTransport());
setTimeout(() => server.registerTool("second", { description: "Is added later." }, say("second")), 2000);
