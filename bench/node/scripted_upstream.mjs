// An upstream in its own process. The path of a request selects where the response stalls, or returns
// when each exchange was closed.
//
//     POST /stall/head/...    never answers
//     POST /stall/stream/...  streams one chunk and then nothing
//     GET  /seen              returns when each call (x-id) was closed, in ms of the system's monotonic clock
//
// Prints its port, then serves until standard input is closed.
import net from "node:net";

import { EVENT } from "./answers.mjs";

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const STREAM = Buffer.from(`${HEAD}${EVENT.length.toString(16)}\r\n${EVENT}\r\n`);
const now = () => Number(process.hrtime.bigint()) / 1e6;
const seen = {};

const server = net.createServer({ noDelay: true }, (socket) => {
  let buffer = "";
  let id;
  socket.setEncoding("latin1");
  socket.on("error", () => {});
  socket.on("close", () => {
    if (id !== undefined) seen[id].closed = now();
  });
  socket.on("data", (data) => {
    buffer += data;
    const end = buffer.indexOf("\r\n\r\n");
    if (end < 0 || id !== undefined) return;
    const head = buffer.slice(0, end);
    if (buffer.length < end + 4 + Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)) return;
    buffer = "";
    const path = head.split(" ")[1];
    if (path === "/seen") {
      const body = JSON.stringify(seen);
      socket.write(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
      return;
    }
    id = /\r\nx-id: *(\S+)/i.exec(head)?.[1] ?? "none";
    seen[id] = { closed: null };
    if (path.startsWith("/stall/stream/")) socket.write(STREAM);
  });
});

server.listen({ port: 0, host: "127.0.0.1", backlog: 8192 }, () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
