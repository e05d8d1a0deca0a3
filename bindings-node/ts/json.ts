/**
 * JSON for the native module.
 *
 * @module
 */

/**
 * Returns a value as JSON. JSON would turn numbers such as `NaN` into null, which means the default.
 *
 * @throws What `invalid` returns for a message, if a number is not finite.
 */
export function finiteJson(value: unknown, invalid: (message: string) => Error): string {
  return JSON.stringify(value, (key, part: unknown) => {
    if (typeof part !== "number" || Number.isFinite(part)) return part;
    throw invalid(`${key}: must be a finite number, got ${part}`);
  });
}
