// Servers that record their connections, for the cases of `tests/vectors/proxies.json`.
import { createServer } from "node:net";

// 254 octets: resolvers reject such a name without a query.
const NAME = [..."abcd"]
  .map((letter) => letter.repeat(60))
  .concat("x.example")
  .join(".");
const VARIABLES = /_proxy$/i;

/**
 * Starts a server on loopback that acts as an HTTP proxy, a SOCKS proxy or an origin. For each
 * connection, it appends `label` and the received credentials to `seen`. It tunnels nothing: after
 * it has recorded the connection, it refuses CONNECT, SOCKS and TLS.
 */
export async function recorder(label, seen) {
  const heads = [];
  const note = (credentials) => seen.push(credentials === "" ? label : `${label} ${credentials}`);
  const server = createServer((socket) => {
    socket.on("error", () => {});
    let data = Buffer.alloc(0);
    let login;
    socket.on("data", (chunk) => {
      data = Buffer.concat([data, chunk]);
      if (data[0] === 0x16) {
        note("");
        socket.destroy();
      } else if (data[0] === 0x05) {
        socks();
      } else if (data.includes("\r\n\r\n")) {
        http(data.toString("latin1"));
      }
    });
    function http(head) {
      heads.push(head);
      const [, basic = ""] = /^proxy-authorization: Basic (.*)$/im.exec(head) ?? [];
      note(Buffer.from(basic, "base64").toString());
      const status = head.startsWith("CONNECT ") ? "403 Forbidden" : "200 OK";
      socket.end(`HTTP/1.1 ${status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
    }
    // RFC 1928 and RFC 1929: the methods, a login if there may be one, and the address.
    function socks() {
      if (login === undefined) {
        if (data.length < 2 || data.length < 2 + data[1]) return;
        login = data.subarray(2, 2 + data[1]).includes(2) ? "wanted" : "";
        data = Buffer.from([5, ...data.subarray(2 + data[1])]);
        socket.write(Buffer.of(5, login === "" ? 0 : 2));
      } else if (login === "wanted") {
        const user = data.subarray(3, 3 + data[2]);
        const password = data.subarray(4 + data[2], 4 + data[2] + data[3 + data[2]]);
        login = `${user}:${password}`;
        data = Buffer.of(5);
        socket.write(Buffer.of(1, 0));
      } else {
        note(login);
        socket.end(Buffer.of(5, 2, 0, 1, 0, 0, 0, 0, 0, 0));
      }
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  return { port, address: `127.0.0.1:${port}`, heads, close: () => server.close() };
}

/**
 * Starts two proxies, `a` and `b`, and an origin server for this test. Their connections are
 * recorded in `seen`.
 */
export async function network(t) {
  const seen = [];
  const [a, b, origin] = await Promise.all(["a", "b", "direct"].map((label) => recorder(label, seen)));
  t.after(() => {
    for (const one of [a, b, origin]) one.close();
  });
  const values = { a: a.address, b: b.address, aport: a.port, port: origin.port, name: NAME, NAME: NAME.toUpperCase() };
  const fill = (text) => text.replaceAll(/\{(\w+)\}/g, (_, name) => String(values[name]));
  return {
    a,
    origin,
    seen,
    fill,
    /**
     * Calls `get(url)`, and returns the server to which this call connects: `a` or `b`, with the
     * credentials that the proxy receives, or `direct`.
     */
    async way(get, url) {
      seen.length = 0;
      await get(fill(url)).then(
        (response) => response.arrayBuffer(),
        () => {},
      );
      return seen.join(" then ") || "direct";
    },
  };
}

/**
 * Runs the function in an environment in which the proxy variables are exactly `variables`.
 * Restores the earlier variables afterwards.
 */
export async function within(variables, run) {
  const before = Object.entries(process.env).filter(([name]) => VARIABLES.test(name) || name === "REQUEST_METHOD");
  for (const [name] of before) delete process.env[name];
  Object.assign(process.env, variables);
  try {
    return await run();
  } finally {
    for (const name of Object.keys(variables)) delete process.env[name];
    Object.assign(process.env, Object.fromEntries(before));
  }
}
