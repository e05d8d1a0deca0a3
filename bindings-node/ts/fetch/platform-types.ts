/**
 * The types of the platform's `fetch`.
 *
 * @module
 */

/** The type of the platform's `fetch` function. */
export type Fetch = typeof globalThis.fetch;

/** The first argument of `fetch`: a URL or a `Request`. */
export type FetchInput = Parameters<typeof globalThis.fetch>[0];

/** The options of the platform's `fetch`, including undici's `dispatcher`. */
export type FetchInit = NonNullable<Parameters<typeof globalThis.fetch>[1]>;
