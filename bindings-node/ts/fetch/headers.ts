/**
 * Headers, as they cross: one string of names and values, a line each.
 *
 * @module
 */

/** Just those. */
export function toLines(headers: Headers): string {
  let flat = "";
  for (const [name, value] of headers) flat += `${name}\n${value}\n`;
  return flat;
}

const CONNECTION_HEADERS = ["expect", "keep-alive", "transfer-encoding", "upgrade"];

/** Throws for the headers that stock fetch refuses, since its connection sees to them. */
export function checkNoConnectionHeaders(headers: Headers): void {
  for (const name of CONNECTION_HEADERS) {
    if (headers.has(name)) throw new TypeError(`fetch failed: the header ${name} cannot be set; remove it`);
  }
}

/** The request's, with what stock fetch adds where the caller said nothing. The URL says the host, and the body how long it is. */
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

/** The response's: after a first line, the reason phrase. */
export function parseHeaders(flat: string): Headers {
  const headers = new Headers();
  const lines = flat.split("\n");
  for (let at = 1; at + 1 < lines.length; at += 2) headers.append(lines[at] as string, lines[at + 1] as string);
  return headers;
}

/** What the status line says beside the status. */
export function reasonPhrase(flat: string): string {
  return flat.slice(0, flat.indexOf("\n"));
}

/** One header's value, several joined, without reading the others; the name is in lower case. */
export function findHeader(flat: string, name: string): string | undefined {
  const mark = `\n${name}\n`;
  let found: string | undefined;
  // Names stand between values: what is found may be a value, and then the line before it is a name.
  for (let at = flat.indexOf("\n"), value = 0; at >= 0; at = flat.indexOf("\n", value)) {
    value = flat.indexOf("\n", at + 1) + 1;
    if (value === 0) break;
    if (!flat.startsWith(mark, at)) continue;
    const text = flat.slice(value, flat.indexOf("\n", value));
    found = found === undefined ? text : `${found}, ${text}`;
  }
  return found;
}
