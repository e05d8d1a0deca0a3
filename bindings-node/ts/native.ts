/**
 * The native half: what it offers, and where it is found.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

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
}

/** A flat array of rows of five: number, kind, and what that kind brings. */
export type Batch = unknown[];

export interface NativePort {
  take(): Batch;
  cancel(number: number): void;
  flush(): void;
  hold(): void;
  release(): void;
}

export interface NativeContext {
  readonly tenant: string | null;
  readonly lane: string;
  readonly remaining: number | null;
}

export interface NativePermit {
  context(): NativeContext;
  close(): void;
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

export interface NativeGate {
  readonly mode: "enforce" | "observe" | "off";
  snapshot(): string;
  prometheus(): string;
  calls(): string;
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
  ): number | Failure;
  acquire(port: NativePort, number: number, tool: string, context: NativeContext | undefined): void;
  drain(port: NativePort, number: number, seconds: number): void;
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
  ) => NativeContext;
  Gate: new () => NativeGate;
  Reply: new () => NativeReply;
  Upload: new () => NativeUpload;
  FakeTarget: new (script: string) => NativeFakeTarget;
  Clock: new (seed: number) => NativeClock;
  open(json: string): NativeGate | Failure;
  openFile(path: string): NativeGate | Failure;
  closedFailure(): Failure;
}

/** As napi-rs names the packages of a platform. */
function platform(): string {
  const { platform, arch } = process;
  if (platform === "linux") return `linux-${arch}-${isMusl() ? "musl" : "gnu"}`;
  return platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;
}

function isMusl(): boolean {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined;
  return report?.header?.glibcVersionRuntime === undefined;
}

function load(): Native {
  const require = createRequire(__filename);
  const name = platform();
  // What `make` builds, beside the sources; a published package has none.
  const built = join(__dirname, "..", "tidegate.node");
  if (existsSync(built)) return require(built);
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
