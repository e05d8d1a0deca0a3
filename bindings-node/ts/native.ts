/**
 * The types of the native module, and the code that finds and loads it.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { debuglog } from "node:util";
import { isMainThread } from "node:worker_threads";

import type { Why } from "./explain.js";

/**
 * The parts of an error of the core, from which `errors.ts` creates a `TidegateError`.
 *
 * `status` is the HTTP status that corresponds to the error, `retryAfter` is in seconds, and
 * `queuePosition` is the number of calls of the same tenant that were ahead in the queue.
 */
export interface Failure {
  kind: string;
  message: string;
  reason?: string;
  target?: string;
  status: number;
  /** `true` if the host refused or reset the connection. */
  connectRefused?: boolean;
  retryAfter?: number;
  queuePosition?: number;
  retryable: boolean;
  /**
   * Index in `CustomFetchCall.thrown` of the value that the caller's own fetch threw; undefined if
   * the gate itself failed.
   */
  thrown?: number;
  /** Number of the call; undefined if the failure belongs to no call. */
  call?: number;
  why?: Why;
}

/**
 * Completions (results of native work) as one flat array. Each has six elements: port number, kind,
 * and up to four values that depend on the kind.
 */
export type Batch = unknown[];

export interface NativePort {
  take(): Batch;
  cancel(number: number): void;
  flush(): void;
  openBodies(): number;
  collectGarbage(): void;
  ref(): void;
  unref(): void;
}

export interface NativeContext {
  readonly tenant: string | null;
  readonly lane: string;
  readonly call: string | null;
  readonly remaining: number | null;
}

export interface NativeToolRequest {
  /**
   * A warning if the caller has to wait for the tool and keeps a model slot while it waits; null if
   * the caller need not wait or keeps no model slot.
   */
  readonly advice: string | null;
  wait(port: NativePort, number: number): void;
}

export interface NativePermit {
  /**
   * Returns the context for calls while the slot is held: `outer`, with this tool in its list of
   * held tools. If `outer` is undefined, the context is the one in which the slot was requested.
   */
  context(outer: NativeContext | undefined): NativeContext;
  close(): void;
}

export interface NativeSlot {
  readonly replica?: string | null;
  /**
   * Reports a failure of the upstream.
   *
   * @returns True if the same call may succeed later; null if the slot was released.
   */
  failed(status: number | undefined, retryAfter: number | undefined): boolean | null;
  close(succeeded: boolean): void;
}

export interface NativeReply {
  /**
   * Returns the next chunk, null at the end, or a failure. If none of these has arrived, returns
   * undefined, and the result is delivered under the port number later.
   */
  pull(port: NativePort, number: number): Uint8Array | Failure | null | undefined;
  close(): void;
}

export interface NativeUpload {
  /**
   * Sends a chunk of the request body without waiting.
   *
   * @returns True if the chunk was taken, false if the previous one has not been read yet, and null
   * if the request no longer reads the body or the upload has ended.
   */
  offer(chunk: Uint8Array): boolean | null;
  ready(port: NativePort, number: number): void;
  finish(): void;
  abandon(): void;
}

/** An exchange that the caller's own fetch makes on behalf of the gate. */
export interface NativeExchange {
  readonly id: number;
  bodySent(): void;
  answer(attempt: number, status: number, headers: string): boolean;
  /**
   * Sends a chunk of the response body to the caller.
   *
   * @returns True if the next chunk may be sent now, false if `ready` must be awaited first, and
   * null if the caller no longer reads the response or the exchange has ended.
   */
  chunk(chunk: Uint8Array): boolean | null;
  ready(port: NativePort, number: number): void;
  end(): void;
  fail(kind: string, message: string, thrown: number): void;
  close(): void;
}

export interface NativeGate {
  readonly canBypass: boolean;
  readonly mode: "enforce" | "observe" | "off";
  targetFor(url: string, model: string | undefined): string | null | Failure;
  setReplicas(target: string, json: string): Failure | null;
  snapshot(): string;
  queued(): number;
  prometheus(): string;
  calls(): string;
  explain(call: number | string): string | null;
  explainAll(limit: number): string;
  send(
    port: NativePort,
    number: number,
    method: string,
    url: string,
    headers: string,
    body: string | Uint8Array | undefined,
    upload: NativeUpload | undefined,
    context: NativeContext | undefined,
    wrapped: boolean,
    maxAttempts: number | undefined,
    /**
     * Undefined if the native transport makes the exchanges. Otherwise the caller's own fetch makes
     * them: true if it also streams the request body, false if the body is in `body`.
     */
    customFetch: boolean | undefined,
  ): number | Failure;
  requestTool(tool: string, context: NativeContext | undefined, yieldSlot: boolean): NativeToolRequest;
  acquireSlot(port: NativePort, number: number, target: string, context: NativeContext | undefined): void;
  drain(port: NativePort, number: number, seconds: number): void;
}

export interface NativeWindow {
  /** Returns a copy of `context` in which calls are counted in the group of this map. */
  itemContext(context: NativeContext | undefined): NativeContext;
  /**
   * If the window allows one more running item, counts it as running and returns true. Otherwise
   * returns false.
   */
  begin(): boolean;
  end(): void;
  /**
   * Completes the port number when `begin` may return true again because calls of the running items
   * got slots. It does not wait for the end of an item.
   */
  ready(port: NativePort, number: number): void;
}

export interface NativeFakeTarget {
  readonly inFlight: number;
  readonly maxInFlight: number;
  readonly unmatched: string[];
  setScript(script: string): void;
  install(): void;
  uninstall(): void;
  resetStartTime(): void;
  attempts(): string;
}

export interface NativeClock {
  enter(): void;
  leave(): void;
  time(): number;
  /**
   * Runs all tasks that are ready, and advances virtual time when none is ready. Returns when there
   * is a result, when the time `until` is reached, or when nothing is left to wait for. `until` is
   * in seconds since the clock was created. If it is undefined, the step has no end time.
   *
   * @returns A value of `Step`.
   */
  step(port: NativePort, until: number | undefined): number;
}

export interface Native {
  Port: new (wake: () => void) => NativePort;
  Context: new (
    outer: NativeContext | undefined,
    tenant: string | undefined,
    lane: string | undefined,
    deadline: number | undefined,
    call: string | undefined,
  ) => NativeContext;
  Gate: (new () => NativeGate) & {
    /**
     * Opens a gate from a JSON configuration. `variables` are the environment variables that
     * configure proxies, by name.
     */
    open(json: string, variables: Record<string, string>): NativeGate | Failure;
    openFile(path: string, variables: Record<string, string>): NativeGate | Failure;
    /**
     * Creates a failure from its parts, for conformance tests. Returns null if the core has no such
     * error. `retryAfter` is in seconds.
     */
    failure(
      kind: string,
      message: string,
      reason: string | undefined,
      target: string | undefined,
      retryAfter: number | undefined,
      queuePosition: number | undefined,
    ): Failure | null;
  };
  Reply: { closed(): Failure };
  /**
   * Passes each line that is logged to `log`. If several threads have called this function, the
   * first one that has not ended gets the lines.
   */
  forwardLog(log: (isWarning: boolean, text: string) => void): void;
  /** Returns the slots of shared limits, and waits for at most 0.5 s until this is done. */
  returnSharedSlots(): void;
  Upload: new () => NativeUpload;
  Window: new (maxItems: number, outer: NativeContext | undefined) => NativeWindow;
  FakeTarget: new (script: string) => NativeFakeTarget;
  /**
   * Returns true if an installed fake target replaces the network, and with it the callers' own
   * fetches.
   */
  isNetworkFaked(): boolean;
  Clock: new (seed: number) => NativeClock;
  /**
   * How a step of the clock ended: a result has arrived (`Finished`), the end time was reached
   * (`Over`), or nothing is left to wait for (`Idle`).
   */
  Step: Readonly<Record<"Finished" | "Over" | "Idle", number>>;
}

/**
 * Returns the name of this platform as napi-rs spells it in package names, such as `linux-x64-gnu`.
 */
function platform(): string {
  const { platform, arch } = process;
  if (platform === "linux") return `linux-${arch}-${isMusl() ? "musl" : "gnu"}`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

function isMusl(): boolean {
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (report === undefined) return false;
  // Without DNS, looking up the names of network peers takes seconds.
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  if (excludeNetwork !== undefined) report.excludeNetwork = excludeNetwork;
  return header?.glibcVersionRuntime === undefined;
}

function load(): Native {
  const require = createRequire(__filename);
  // `make` builds the module beside the sources. A published package has none there.
  const built = join(__dirname, "..", "tidegate.node");
  if (existsSync(built)) return require(built);
  const name = platform();
  try {
    return require(`@tidegate/node-${name}`);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "MODULE_NOT_FOUND") throw cause;
    throw new Error(
      `the native module of tidegate for ${name} is not installed (@tidegate/node-${name}): install without ` +
        "--omit=optional on the platform that runs it, keep `tidegate` external if the program is bundled, or build " +
        "it from source with `make`",
      { cause },
    );
  }
}

export const native: Native = load();

/** The largest number that the native module takes as a count. */
export const MAX_COUNT = 2 ** 32 - 1;

const debug = debuglog("tidegate");
native.forwardLog((isWarning, text) =>
  isWarning ? process.emitWarning(text, { type: "TidegateWarning" }) : debug("%s", text),
);
// Other processes get the slots at once, and not only when a lease has ended.
if (isMainThread) process.once("exit", () => native.returnSharedSlots());
