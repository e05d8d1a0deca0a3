// Starts the simulator as a server, which acts as a provider that enforces budgets.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/**
 * Path of the command `tidegate`, which `make test-node` sets. Tests that need the simulator are
 * skipped without it.
 */
export const TIDEGATE = process.env.TIDEGATE_CLI;

/**
 * Configuration of a fast engine with so much memory that only the provider's budget limits calls.
 */
const ENGINE = {
  max_model_len: 1_000_000,
  num_blocks: 100_000,
  step: { base_ms: 1, per_prompt_token_ms: 0.001, per_sequence_ms: 0.001 },
};

/**
 * Name of the request header that sets the length of the answer in tokens. Without the header, the
 * length is `max_tokens`.
 */
export const LENGTH = "x-sim-output-tokens";

/**
 * Starts a simulated provider for this test, in real time. `token_rate` contains the tokens and
 * requests per minute that the provider allows. It answers further requests with 429.
 */
export async function simulated(t, token_rate) {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const config = join(folder, "sim.json");
  writeFileSync(config, JSON.stringify({ engine: ENGINE, faults: { token_rate } }));
  const options = ["sim", "--listen", "127.0.0.1:0", "--json", "--config", config];
  const child = spawn(TIDEGATE, options, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => {
    child.kill();
    rmSync(folder, { recursive: true });
  });
  for await (const line of createInterface(child.stdout)) return new Provider(JSON.parse(line).base_url);
  throw new Error("the simulator did not start");
}

class Provider {
  constructor(url) {
    this.url = url;
  }

  /** Returns the number of responses that the provider has sent, by HTTP status. */
  async statuses() {
    const stats = await (await fetch(new URL("/sim/stats", this.url))).json();
    const counts = {};
    for (const { statuses } of Object.values(stats.tenants)) {
      for (const [status, count] of Object.entries(statuses)) counts[status] = (counts[status] ?? 0) + count;
    }
    return counts;
  }
}
