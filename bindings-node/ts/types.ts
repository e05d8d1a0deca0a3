/**
 * Types that several modules of the package share.
 *
 * @module
 */

/** The priority class of a call, most urgent first. */
export type Lane = "interactive" | "standard" | "batch";
