/**
 * The native half: what it offers, and where it is found.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import type { Why } from "./explain.js";

/** The parts of an error of the core. */
export interface Failure {
  kind: string;
  message: string;
  reason?: string;
  target?: string;
  status: number;
  retryAfter?: number;
  queuePosition?: number;
  retryable: boolean;
  /** Where what the caller's own fetch threw is kept, if that is what failed. */
  thrown?: number;
  /** The number of the call that it ended. */
  call?: number;
  why?: Why;
}

/** A flat array of rows of six: number, kind, and what that kind brings. */
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
  /** What is to be said to whoever waits here while holding a model slot. */
  readonly advice: string | null;
  granted(port: NativePort, number: number): void;
}

export interface NativePermit {
  context(): NativeContext;
  close(): void;
}

export interface NativeSlot {
  readonly replica?: string | null;
  /** Whether the same call may succeed later; null once it was given back. */
  failed(status: number | undefined, retryAfter: number | undefined): boolean | null;
  close(well: boolean): void;
}

export interface NativeReply {
  /** The next chunk; null at the end; a failure; or undefined: one of these will come with the number. */
  pull(port: NativePort, number: number): Uint8Array | Failure | null | undefined;
  close(): void;
}

export interface NativeUpload {
  /** True: taken. False: no room yet. Null: nobody reads it any more. */
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
  /** True: go on. False: wait for room. Null: nobody reads any more. */
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
    /** The caller's own fetch makes the exchanges; true: it streams the body up. */
    kept: boolean | undefined,
  ): number | Failure;
  ask(tool: string, context: NativeContext | undefined, yieldSlot: boolean): NativeAsked;
  acquireSlot(port: NativePort, number: number, target: string, context: NativeContext | undefined): void;
  drain(port: NativePort, number: number, seconds: number): void;
}

export interface NativeWindow {
  /** The context in which its items run: as it is, but for whose calls they are. */
  inside(context: NativeContext | undefined): NativeContext;
  /** Begins one more, if one may. */
  begin(): boolean;
  end(): void;
  /** After a no: the number is told when it is worth asking again though nothing has ended. */
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
  /** What ended the step: something is finished (0), the time is over (1), or nothing came (2). */
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
    /** `variables`: the environment's variables for proxies. */
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
  /** What a step of the clock came to. */
  Step: Readonly<Record<"Finished" | "Over" | "Idle", number>>;
}

/** As napi-rs names the packages of a platform. */
function platform(): string {
  const { platform, arch } = process;
  if (platform === "linux") return `linux-${arch}-${isMusl() ? "musl" : "gnu"}`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

function isMusl(): boolean {
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (report === undefined) return false;
  // Its names of network peers take seconds where there is no DNS.
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  if (excludeNetwork !== undefined) report.excludeNetwork = excludeNetwork;
  return header?.glibcVersionRuntime === undefined;
}

function load(): Native {
  const require = createRequire(__filename);
  // What `make` builds, beside the sources; a published package has none.
  const built = join(__dirname, "..", "tidegate.node");
  if (existsSync(built)) return require(built);
  const name = platform();
  try {
    return require(`@tidegate/node-${name}`);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "MODULE_NOT_FOUND") throw cause;
    throw new Error(
      `tidegate has no native half for ${name}: @tidegate/node-${name} is not installed. Install without ` +
        "--omit=optional, and on the platform that runs it; or build it from source with `make`",
      { cause },
    );
  }
}

export const native: Native = load();
