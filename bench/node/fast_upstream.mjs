// An upstream that is never the bottleneck: fixed answers, written straight to the socket, in a process of its own.
//
// `POST /v1/chat/completions` answers a small completion. `POST /sse/N/GAP_MS/v1/chat/completions` streams N events,
// one every GAP_MS milliseconds. Prints its port, then serves until standard input is closed.
import net from "node:net";

import { COMPLETION, EVENT, LAST } from "./answers.mjs";

const HEAD = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_1\r\ncontent-length: ${COMPLETION.length}\r\n\r\n`;
const ANSWER = Buffer.from(HEAD + COMPLETION);
const STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const chunked = (text) => `${text.length.toString(16)}\r\n${text}\r\n`;
const CHUNK = Buffer.from(chunked(EVENT));
const END = Buffer.from(`${chunked(EVENT)}${chunked(LAST)}0\r\n\r\n`);

const server = net.createServer({ noDelay: true }, (socket) => {
  let buffer = "";
  socket.setEncoding("latin1");
  socket.on("error", () => {});
  socket.on("data", (data) => {
    buffer += data;
    for (let end = buffer.indexOf("\r\n\r\n"); end >= 0; end = buffer.indexOf("\r\n\r\n")) {
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(buffer.slice(0, end))?.[1] ?? 0);
      if (buffer.length < end + 4 + length) return;
      const [, kind, events, gap] = buffer.slice(0, buffer.indexOf(" HTTP")).split(" ")[1].split("/");
      buffer = buffer.slice(end + 4 + length);
      if (kind === "sse") stream(socket, Number(events), Number(gap));
      else socket.write(ANSWER);
    }
  });
});

function stream(socket, events, gap) {
  socket.write(STREAM);
  let left = events;
  const send = () => {
    if (socket.destroyed) return;
    socket.write(--left > 0 ? CHUNK : END);
    if (left > 0) setTimeout(send, gap);
  };
  send();
}

server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
