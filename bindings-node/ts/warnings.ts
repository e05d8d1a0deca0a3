/**
 * Warnings to the line of the user's that they are about, once each.
 *
 * @module
 */

/** So many lines are told. */
const MAX_WARNINGS = 1024;
const warnedLines = new Set<string>();

/** Warns whoever asked for a tool while holding a model slot. To be called before the first `await`: afterwards the caller is off the stack. */
export function warnOfHeldSlot(text: string): void {
  const site = callerLine();
  if (warnedLines.has(site) || warnedLines.size >= MAX_WARNINGS) return;
  warnedLines.add(site);
  process.emitWarning(text, { type: "SlotHeldWarning", code: "TIDEGATE_SLOT_HELD", detail: site });
}

/** The first line of the stack that is neither ours nor the engine's. */
function callerLine(): string {
  const at = { stack: "" };
  Error.captureStackTrace(at, warnOfHeldSlot);
  const lines = at.stack.split("\n").slice(1);
  const theirs = (line: string) => !INTERNAL_FRAMES.some((part) => line.includes(part));
  return (lines.find(theirs) ?? "").trim();
}

/** `new Promise (<anonymous>)` is in a stack too. */
const INTERNAL_FRAMES = [__dirname, "(<anonymous>)", "(node:"];
