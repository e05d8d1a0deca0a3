/**
 * What your own tests need: a fake target to script, and virtual time.
 *
 * ```ts
 * const target = new FakeTarget({ answers: [rateLimited(90), ok("done")] });
 * const clock = new VirtualClock().start();
 * await target.during(async () => {
 *   assert.equal(await clock.until(agent()), "done"); // 90 s of virtual time, a few milliseconds of yours
 * });
 * clock.stop();
 * assert.deepEqual(target.attempts.map(({ status }) => status), [429, 200]);
 * ```
 *
 * While a target is installed, every gate of the process sends to it instead of the network, with the real queueing, retries, cool-downs and
 * cancelling above.
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
