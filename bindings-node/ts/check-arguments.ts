/**
 * Checks the types of arguments. The native module checks their ranges.
 *
 * @module
 */

/** Length of the longest string that an error shows. A longer one may be a credential. */
const MAX_SHOWN_TEXT = 24;

/** Throws a `TypeError` unless `value` is a string. `name` is the name of the argument. */
export function checkString(name: string, value: unknown): void {
  if (typeof value !== "string") throw new TypeError(`${name}: give a string`);
}

/** Throws a `TypeError` unless `value` is a number. `name` is the name of the argument, in seconds. */
export function checkSeconds(name: string, value: unknown): void {
  if (typeof value !== "number") {
    throw new TypeError(`${name}: give a number of seconds; got ${describeValue(value)}`);
  }
}

/** Returns the description of a value in an error, without text that may be a credential. */
function describeValue(value: unknown): string {
  if (typeof value !== "string") return value === null ? "null" : `a value of the type ${typeof value}`;
  const isShown = value.length <= MAX_SHOWN_TEXT && !/[@?]/.test(value);
  return isShown ? `the string ${JSON.stringify(value)}` : `a string of ${value.length} characters`;
}
