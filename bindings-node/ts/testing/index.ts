/**
 * Test helpers: a fake target that answers from a script, and virtual time.
 *
 * While a target is installed, every gate of the process sends to the target instead of the
 * network. Queueing, retries, cool-downs and cancellation above it are real. While a target or a
 * clock is installed, gates share no limits with other processes, whatever `share` says.
 *
 * @example
 * ```ts
 * const target = new FakeTarget({ answers: [rateLimited(90), ok("done")] });
 * const clock = new VirtualClock().start();
 * await target.during(async () => {
 *   // 90 s of virtual time pass in a few milliseconds.
 *   assert.equal(await clock.until(agent()), "done");
 * });
 * clock.stop();
 * assert.deepEqual(target.attempts.map(({ status }) => status), [429, 200]);
 * ```
 *
 * @packageDocumentation
 */
export {
  Answer,
  breakOff,
  errorEvent,
  ok,
  overloaded,
  type Pace,
  rateLimited,
  refuseConnection,
  stall,
  status,
  stream,
  type ToolCall,
  truncate,
} from "./answers.js";
export type { Attempt, Call } from "./attempts.js";
export { FakeTarget, type Match, type Script } from "./fake-target.js";
export { type ClockOptions, VirtualClock } from "./virtual-clock.js";
