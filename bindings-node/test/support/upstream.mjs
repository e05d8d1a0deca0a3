// A scripted HTTP/1.1 server on loopback.
import { once } from "node:events";
import http from "node:http";

/**
 * Starts a server for this test. `handler(exchange)` answers each request. The property `exchanges`
 * of the returned server lists all requests so far.
 */
export async function upstream(t, handler = json({ ok: true })) {
  const up = new Upstream(handler);
  await up.start();
  t.after(() => up.stop());
  return up;
}

class Upstream {
  constructor(handler) {
    this.handler = handler;
    this.exchanges = [];
    this.waiting = [];
  }

  async start() {
    this.server = http.createServer((request, response) => this.serve(request, response));
    this.server.keepAliveTimeout = 60_000;
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  async stop() {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }

  async serve(request, response) {
    const exchange = new Exchange(request, response);
    try {
      if (!request.url.endsWith("/early")) exchange.body = await read(request);
    } catch {
      // The client closed the connection, which `exchange.closed` reports.
    }
    this.exchanges.push(exchange);
    for (const wake of this.waiting.splice(0)) wake();
    await this.handler(exchange);
  }

  /**
   * Returns the exchange with the index `number`, counted from 0. Waits until the server has
   * received that request.
   */
  async exchange(number = 0) {
    while (this.exchanges.length <= number) await new Promise((wake) => this.waiting.push(wake));
    return this.exchanges[number];
  }
}

class Exchange {
  constructor(request, response) {
    this.request = request;
    this.response = response;
    this.path = request.url;
    this.headers = request.headers;
    /**
     * A promise that resolves when the client closes the connection before the end of the response.
     */
    this.closed = new Promise((resolve) => {
      response.on("close", () => {
        if (!response.writableFinished) resolve();
      });
    });
  }

  json() {
    return JSON.parse(this.body.toString());
  }
}

async function read(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Returns a handler that answers with `body` as JSON. */
export function json(body, status = 200, headers = {}) {
  return ({ response }) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
}

/** A handler that answers with the method, path, headers and body of the request, as JSON. */
export function echo({ request, response, headers, body }) {
  const { host, connection, ...rest } = headers;
  response.writeHead(200, { "content-type": "application/json" });
  response.end(
    JSON.stringify({ method: request.method, path: request.url, headers: rest, body: body.toString("latin1") }),
  );
}

export const event = (data) => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;

/** Returns a handler that sends these server-sent events and then ends the response. */
export function events(...lines) {
  return ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const line of lines) response.write(event(line));
    response.end();
  };
}

/**
 * Returns a handler that sends these server-sent events, then nothing more, and does not end the
 * response.
 */
export function stallAfter(...lines) {
  return ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const line of lines) response.write(event(line));
  };
}

/** A handler that sends nothing and does not end the response. */
export const never = () => {};

/** A handler that closes the connection without a response. */
export const hangUp = ({ request }) => request.socket.destroy();
