// The one instance of the package, whoever imports or requires it.
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
