// The names of prelude.ts as every attack sees them.

type Prelude = typeof import("./prelude.ts");

declare global {
  const auth: Prelude["auth"];
  const out: Prelude["out"];
  const why: Prelude["why"];
  const show: Prelude["show"];
  const readAll: Prelude["readAll"];
  const raw: Prelude["raw"];
  /** The MCP servers of the run. */
  const mcp: Record<string, Record<string, (args?: unknown) => Promise<unknown>>>;
  const attempts: Prelude["attempts"];
}

export {};
