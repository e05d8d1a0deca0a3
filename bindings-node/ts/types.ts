/**
 * Types that several modules of the package share.
 *
 * @module
 */

/** The priority class of a call. */
export type Lane = "interactive" | "standard" | "batch";
