/**
 * Process warnings that point at the caller's line, once for each line.
 *
 * @module
 */

/** Maximum number of lines that are warned about. */
const MAX_WARNINGS = 1024;
const warnedLines = new Set<string>();

/**
 * Warns a caller that waits for a tool while it holds a model slot.
 *
 * Must be called before the first `await`, because the caller is on the stack only until then.
 */
export function warnOfHeldSlot(text: string): void {
  const site = callerLine();
  if (warnedLines.has(site) || warnedLines.size >= MAX_WARNINGS) return;
  warnedLines.add(site);
  process.emitWarning(text, { type: "SlotHeldWarning", code: "TIDEGATE_SLOT_HELD", detail: site });
}

/** Returns the first line of the stack that is outside this package and Node. */
function callerLine(): string {
  const at = { stack: "" };
  Error.captureStackTrace(at, warnOfHeldSlot);
  const lines = at.stack.split("\n").slice(1);
  const theirs = (line: string) => !INTERNAL_FRAMES.some((part) => line.includes(part));
  return (lines.find(theirs) ?? "").trim();
}

/** Parts of stack lines that are not the caller's. `new Promise (<anonymous>)` is one of them. */
const INTERNAL_FRAMES = [__dirname, "(<anonymous>)", "(node:"];
