// Writes TypeScript that gives the board, and the options of its panels, the types that Grafana publishes.
import { readFileSync, writeFileSync } from "node:fs";

const [boardFile, types, output] = process.argv.slice(2);
const board = JSON.parse(readFileSync(boardFile, "utf8"));
const lines = [
  `import type { Dashboard } from "${types}/dashboard/x/types.gen";`,
  // Values of an enumeration as they are in JSON; every key may have its default.
  "type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]?: Json<T[K]> } : T;",
  `export const board: Dashboard = ${JSON.stringify(board, null, 1)};`,
];
for (const kind of new Set(board.panels.map((panel) => panel.type))) {
  lines.push(`import type * as ${kind} from "${types}/composable/${kind}/panelcfg/x/types.gen";`);
}
for (const { id, type, options, fieldConfig } of board.panels) {
  lines.push(`export const options${id}: Json<${type}.Options> = ${JSON.stringify(options)};`);
  const { custom } = fieldConfig.defaults;
  if (custom) lines.push(`export const custom${id}: Json<${type}.FieldConfig> = ${JSON.stringify(custom)};`);
}
writeFileSync(output, lines.join("\n"));
