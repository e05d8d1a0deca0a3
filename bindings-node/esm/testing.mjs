// The same instance of the module for import and require.
import testing from "../dist/testing/index.js";

export const {
  Answer,
  breakOff,
  errorEvent,
  FakeTarget,
  ok,
  overloaded,
  rateLimited,
  refuseConnection,
  stall,
  status,
  stream,
  truncate,
  VirtualClock,
} = testing;
