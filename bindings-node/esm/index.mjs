// The same instance of the package for import and require.
import tidegate from "../dist/index.js";

export const {
  ConfigError,
  ConnectionFailed,
  Deadline,
  Gate,
  Refused,
  RequestError,
  TargetSlot,
  TidegateError,
  Timeout,
  ToolSlot,
  Truncated,
  UnknownNameError,
} = tidegate;
