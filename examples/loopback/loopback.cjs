// Ends the program if it connects to another machine. Node loads this module at startup.
//
// It does for Node what `sitecustomize.py` does for Python. All connections of Node's own libraries
// are made by `Socket.connect`. Those of the gate are not seen.
const { Socket } = require("node:net");

const LOOPBACK = /^(localhost|127\..*|::1)$/;
const { connect } = Socket.prototype;

Socket.prototype.connect = function (...args) {
  // `net.connect` passes its arguments as one array.
  const [options, second] = Array.isArray(args[0]) ? args[0] : args;
  const host = typeof options === "object" ? options.host : second;
  if (typeof host === "string" && !LOOPBACK.test(host)) {
    process.stderr.write(`examples may connect to loopback only, and this one tried ${host}\n`);
    // Not an exception, because telemetry code ignores exceptions.
    process.exit(70);
  }
  return connect.apply(this, args);
};
