/**
 * Headers as one string for the native module: names and values, one line each.
 *
 * @module
 */

/** Returns the headers as lines. */
export function toLines(headers: Headers): string {
  let flat = "";
  for (const [name, value] of headers) flat += `${name}\n${value}\n`;
  return flat;
}

/** Headers that the connection sets. */
const CONNECTION_HEADERS = ["expect", "keep-alive", "transfer-encoding", "upgrade"];

/**
 * Checks that the caller sets no header of the connection.
 *
 * @throws `TypeError` if there is one, as the platform's fetch does.
 */
export function checkNoConnectionHeaders(headers: Headers): void {
  for (const name of CONNECTION_HEADERS) {
    if (headers.has(name)) throw new TypeError(`fetch failed: the header ${name} cannot be set; remove it`);
  }
}

/**
 * Returns the headers of a request as lines, with the defaults of the platform's fetch.
 *
 * The host comes from the URL, and the content length from the body.
 */
export function requestLines(headers: Headers, secure: boolean, length: string | undefined): string {
  let flat = "";
  for (const [name, value] of headers) {
    if (name !== "host" && name !== "content-length") flat += `${name}\n${value}\n`;
  }
  if (length !== undefined) flat += `content-length\n${length}\n`;
  if (!headers.has("accept")) flat += "accept\n*/*\n";
  if (!headers.has("accept-language")) flat += "accept-language\n*\n";
  if (!headers.has("sec-fetch-mode")) flat += "sec-fetch-mode\ncors\n";
  if (!headers.has("user-agent")) flat += "user-agent\nnode\n";
  if (!headers.has("accept-encoding")) {
    flat += `accept-encoding\n${secure ? "br, gzip, deflate" : "gzip, deflate"}\n`;
  }
  return flat;
}

/** Returns the headers of a response. Its first line is the reason phrase. */
export function parseHeaders(flat: string): Headers {
  const headers = new Headers();
  const lines = flat.split("\n");
  for (let at = 1; at + 1 < lines.length; at += 2) headers.append(lines[at] as string, lines[at + 1] as string);
  return headers;
}

/** Returns the reason phrase of the status line. */
export function reasonPhrase(flat: string): string {
  return flat.slice(0, flat.indexOf("\n"));
}

/**
 * Returns the value of a header without parsing the others. Several values are joined.
 *
 * @param flat - The headers as lines.
 * @param name - The name in lower case.
 */
export function findHeader(flat: string, name: string): string | undefined {
  const mark = `\n${name}\n`;
  let found: string | undefined;
  // Names and values alternate, so the search steps over the values.
  for (let at = flat.indexOf("\n"), value = 0; at >= 0; at = flat.indexOf("\n", value)) {
    value = flat.indexOf("\n", at + 1) + 1;
    if (value === 0) break;
    if (!flat.startsWith(mark, at)) continue;
    const text = flat.slice(value, flat.indexOf("\n", value));
    found = found === undefined ? text : `${found}, ${text}`;
  }
  return found;
}
