/**
 * Headers, as they cross: one string of names and values, a line each.
 *
 * @module
 */

/** The request's, with what stock fetch adds where the caller said nothing. */
export function flatten(headers: Headers, secure: boolean): string {
  let flat = "";
  for (const [name, value] of headers) flat += `${name}\n${value}\n`;
  if (!headers.has("accept")) flat += "accept\n*/*\n";
  if (!headers.has("accept-language")) flat += "accept-language\n*\n";
  if (!headers.has("sec-fetch-mode")) flat += "sec-fetch-mode\ncors\n";
  if (!headers.has("user-agent")) flat += "user-agent\nnode\n";
  if (!headers.has("accept-encoding")) {
    flat += `accept-encoding\n${secure ? "br, gzip, deflate" : "gzip, deflate"}\n`;
  }
  return flat;
}

/** The response's. */
export function headersOf(flat: string): Headers {
  const headers = new Headers();
  const lines = flat.split("\n");
  for (let at = 0; at + 1 < lines.length; at += 2) headers.append(lines[at] as string, lines[at + 1] as string);
  return headers;
}

/** One header's value, or the first of several, without reading the others; the name is in lower case. */
export function find(flat: string, name: string): string | undefined {
  const mark = `${name}\n`;
  let at = flat.startsWith(mark) ? 0 : -1;
  for (let from = 0; at < 0; ) {
    // Names stand on even lines: one that is found may be a value.
    const value = flat.indexOf("\n", from);
    const next = value < 0 ? -1 : flat.indexOf("\n", value + 1);
    if (next < 0) return undefined;
    from = next + 1;
    if (flat.startsWith(mark, from)) at = from;
  }
  const start = at + mark.length;
  return flat.slice(start, flat.indexOf("\n", start));
}
