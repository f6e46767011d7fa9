// A client on the TypeScript SDK with a broken connection: `node client_resume.mjs PACKAGES GENERATION URL KEY FILE`.
// Calls a tool that runs until FILE exists, and prints the result.

const [packages, generation, url, key, file] = process.argv.slice(2);
const first = generation === "v1";
const from = (path) => import(`${packages}/@modelcontextprotocol/${path}`);
const { Client } = await from(first ? "sdk/dist/esm/client/index.js" : "client/dist/index.mjs");
const { StreamableHTTPClientTransport } = await from(
  first ? "sdk/dist/esm/client/streamableHttp.js" : "client/dist/index.mjs",
);

const client = new Client({ name: "client_resume.mjs", version: "1.0.0" });
// The SDK reports a broken stream here and then reconnects.
client.onerror = () => {};
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { "X-API-Key": key } },
});
await client.connect(transport);
const progress = [];
const options = { onprogress: (told) => progress.push(told.progress) };
const wanted = { name: "echo", arguments: { fault: "until", message: file, steps: 3 } };
const result = await (first ? client.callTool(wanted, undefined, options) : client.callTool(wanted, options));
console.log(JSON.stringify({ text: result.content[0].text, progress }));
await client.close();
