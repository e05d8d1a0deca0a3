/**
 * Emits process warnings that name the caller's line of code, once for each line.
 *
 * @module
 */

/** Maximum number of lines of callers that are remembered. Later lines cause no warning. */
const MAX_WARNINGS = 1024;
const warnedLines = new Set<string>();

/**
 * Emits a process warning for a caller that waits for a tool while it holds a model slot. `text` is
 * the message.
 *
 * Only one warning is emitted for each line of the program. Must be called before the first
 * `await`, because the caller is on the stack only until then.
 */
export function warnOfHeldSlot(text: string): void {
  const site = callerLine();
  if (warnedLines.has(site) || warnedLines.size >= MAX_WARNINGS) return;
  warnedLines.add(site);
  process.emitWarning(text, { type: "SlotHeldWarning", code: "TIDEGATE_SLOT_HELD", detail: site });
}

/**
 * Returns the first line of the stack trace that is outside this package and Node, or "" if there
 * is none.
 */
function callerLine(): string {
  const at = { stack: "" };
  Error.captureStackTrace(at, warnOfHeldSlot);
  const lines = at.stack.split("\n").slice(1);
  const isCaller = (line: string) => !INTERNAL_FRAMES.some((part) => line.includes(part));
  return (lines.find(isCaller) ?? "").trim();
}

/**
 * Stack lines that contain one of these texts belong to this package or to Node. `new Promise
 * (<anonymous>)` is a line of Node.
 */
const INTERNAL_FRAMES = [__dirname, "(<anonymous>)", "(node:"];
