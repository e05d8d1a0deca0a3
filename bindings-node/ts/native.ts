/**
 * The interface of the native module, and how the module is found.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import type { Why } from "./explain.js";

/** A failure of the core. */
export interface Failure {
  kind: string;
  message: string;
  reason?: string;
  target?: string;
  status: number;
  retryAfter?: number;
  queuePosition?: number;
  retryable: boolean;
  /** Index of the error of the caller's own fetch, if that failed. */
  thrown?: number;
  /** Number of the call. */
  call?: number;
  why?: Why;
}

/** A flat array of rows of six values: number, kind, and the values of that kind. */
export type Batch = unknown[];

export interface NativePort {
  take(): Batch;
  cancel(number: number): void;
  flush(): void;
  openBodies(): number;
  collect(): void;
  hold(): void;
  release(): void;
}

export interface NativeContext {
  readonly tenant: string | null;
  readonly lane: string;
  readonly call: string | null;
  readonly remaining: number | null;
}

export interface NativeAsked {
  /** Warning for a caller that waits while it holds a model slot. */
  readonly advice: string | null;
  granted(port: NativePort, number: number): void;
}

export interface NativePermit {
  context(): NativeContext;
  close(): void;
}

export interface NativeSlot {
  readonly replica?: string | null;
  /** Whether the same call may succeed later; null if the slot was released. */
  failed(status: number | undefined, retryAfter: number | undefined): boolean | null;
  close(well: boolean): void;
}

export interface NativeReply {
  /**
   * Returns the next chunk, null at the end, a failure, or undefined if the result will arrive
   * under the number.
   */
  pull(port: NativePort, number: number): Uint8Array | Failure | null | undefined;
  close(): void;
}

export interface NativeUpload {
  /**
   * Returns true if the chunk was taken, false if there is no room yet, and null if nobody reads
   * it.
   */
  offer(chunk: Uint8Array): boolean | null;
  room(port: NativePort, number: number): void;
  finish(): void;
  giveUp(): void;
}

/** An exchange that the caller's own fetch makes. */
export interface NativeKept {
  readonly id: number;
  sent(): void;
  answer(attempt: number, status: number, headers: string): boolean;
  /** Returns true to continue, false to wait for room, and null if nobody reads the response. */
  chunk(chunk: Uint8Array): boolean | null;
  room(port: NativePort, number: number): void;
  end(): void;
  fail(kind: string, message: string, thrown: number): void;
  close(): void;
}

export interface NativeGate {
  readonly aside: boolean;
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
    /** Whether the caller's own fetch makes the exchanges; true if it streams the body. */
    kept: boolean | undefined,
  ): number | Failure;
  ask(tool: string, context: NativeContext | undefined, yieldSlot: boolean): NativeAsked;
  acquireSlot(port: NativePort, number: number, target: string, context: NativeContext | undefined): void;
  drain(port: NativePort, number: number, seconds: number): void;
}

export interface NativeWindow {
  /** Returns the context of the items: the given one, marked as belonging to this window. */
  inside(context: NativeContext | undefined): NativeContext;
  /** Starts one more item if possible. */
  begin(): boolean;
  end(): void;
  /** Completes the number when `begin` may succeed although no item has ended. */
  news(port: NativePort, number: number): void;
}

export interface NativeFakeTarget {
  readonly inFlight: number;
  readonly maxInFlight: number;
  readonly unmatched: string[];
  follow(script: string): void;
  install(): void;
  uninstall(): void;
  start(): void;
  attempts(): string;
}

export interface NativeClock {
  enter(): void;
  leave(): void;
  time(): number;
  /**
   * Returns how the step ended: something finished (0), the time is over (1), or nothing happened
   * (2).
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
    /** `variables` are the proxy variables of the environment. */
    open(json: string, variables: Record<string, string>): NativeGate | Failure;
    openFile(path: string, variables: Record<string, string>): NativeGate | Failure;
    /** For conformance tests. */
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
  Upload: new () => NativeUpload;
  Window: new (most: number, around: NativeContext | undefined) => NativeWindow;
  FakeTarget: new (script: string) => NativeFakeTarget;
  Clock: new (seed: number) => NativeClock;
  /** How a step of the clock ended. */
  Step: Readonly<Record<"Finished" | "Over" | "Idle", number>>;
}

/** Returns the name of the platform, as napi-rs names its packages. */
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
        "--omit=optional on the platform that runs it, or build it from source with `make`",
      { cause },
    );
  }
}

export const native: Native = load();
