// A client on the TypeScript SDK: `node client.mjs PACKAGES GENERATION URL KEY FILE`. Uses every feature once and prints
// the results.
//
// PACKAGES is the folder of the packages. GENERATION is `v1`, `v2` (its default: the handshake of older revisions) or
// `v2-newest` (the newest revision, if the server supports it).

const [packages, generation, url, key, file] = process.argv.slice(2);
const first = generation === "v1";
const from = (path) => import(`${packages}/@modelcontextprotocol/${path}`);
const { Client } = await from(first ? "sdk/dist/esm/client/index.js" : "client/dist/index.mjs");
const { StreamableHTTPClientTransport } = await from(
  first ? "sdk/dist/esm/client/streamableHttp.js" : "client/dist/index.mjs",
);

const capabilities = { elicitation: { form: {} }, sampling: {} };
const mode = generation === "v2-newest" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "client.mjs", version: "1.0.0" }, { capabilities, ...mode });
const seen = { progress: [], asked: [] };
const schemas = first ? await from("sdk/dist/esm/types.js") : {};
const on = (method, schema, handler) => client.setRequestHandler(first ? schemas[schema] : method, handler);
on("elicitation/create", "ElicitRequestSchema", async () => {
  seen.asked.push("elicitation");
  return { action: "accept", content: { name: "Ann" } };
});
on("sampling/createMessage", "CreateMessageRequestSchema", async () => {
  seen.asked.push("sampling");
  return { role: "assistant", content: { type: "text", text: "a model said this" }, model: "none" };
});

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { "X-API-Key": key } },
});
await client.connect(transport);

const onprogress = ({ progress, total }) => seen.progress.push([progress, total]);
const request = (name, args) => {
  const wanted = { name, arguments: args };
  return first ? client.callTool(wanted, undefined, { onprogress }) : client.callTool(wanted, { onprogress });
};
const call = async (name, args = {}) => (await request(name, args)).content.at(-1).text;
const prompt = await client.getPrompt({ name: "args-prompt", arguments: { city: "Oslo" } });
const read = await client.readResource({ uri: "demo://resource/dynamic/text/1" });
const completed = await client.complete({
  ref: { type: "ref/prompt", name: "completable-prompt" },
  argument: { name: "department", value: "S" },
});
const result = {
  revision: first ? transport.protocolVersion : client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion()?.name,
  tools: (await client.listTools()).tools.length,
  prompts: (await client.listPrompts()).prompts.length,
  resources: (await client.listResources()).resources.length,
  templates: (await client.listResourceTemplates()).resourceTemplates.length,
  sum: await call("get-sum", { a: 2, b: 3 }),
  structured: (await request("get-structured-content", { location: "Chicago" })).structuredContent,
  unknown: await call("no-such-tool").catch((error) => error.message),
  file: await call("read_text_file", { path: file }),
  zone: JSON.parse(await call("get_current_time", { timezone: "UTC" })).timezone,
  long: await call("trigger-long-running-operation", { duration: 0.2, steps: 2 }),
  elicited: await call("trigger-elicitation-request"),
  sampled: await call("trigger-sampling-request", { prompt: "hello" }),
  prompt: prompt.messages[0].content.text,
  read: read.contents[0].text,
  completed: completed.completion.values,
};
await client.close();
console.log(JSON.stringify({ ...result, ...seen }));
