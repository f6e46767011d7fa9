// An MCP server over stdio, on the TypeScript SDK of the first generation, that gets a tool more when
// it has been asked for its tools.
//
// `node growing.mjs SDK`, where SDK is the folder of the SDK's package.

const from = (name) => import(`${process.argv[2]}/dist/esm/server/${name}.js`);
const { McpServer } = await from("mcp");
const { StdioServerTransport } = await from("stdio");

const server = new McpServer({ name: "growing", version: "1.0.0" });
const say = (text) => async () => ({ content: [{ type: "text", text }] });
server.registerTool("first", { description: "Is there from the start." }, say("first"));
await server.connect(new StdioServerTransport());
setTimeout(() => server.registerTool("second", { description: "Comes later." }, say("second")), 2000);
