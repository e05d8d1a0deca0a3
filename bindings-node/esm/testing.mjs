// The one instance of the module, whoever imports or requires it.
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
