// A browser, from wherever there is one: named, installed, or out of a package of npm's.

import { accessSync, constants, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import puppeteer from "puppeteer-core";

const INSTALLED = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"];
const APPLICATIONS = [
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
];
// The sandbox wants privileges that containers lack. It guards against pages that one does not trust; these are ours.
const ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];

/** Starts one; says how to get one where that fails. */
export async function launched() {
  const failures = [];
  for (const candidate of candidates()) {
    try {
      const { executablePath, args = [], env = {} } = await candidate();
      return await puppeteer.launch({
        executablePath,
        args: [...ARGUMENTS, ...args],
        env: { ...process.env, ...env },
      });
    } catch (error) {
      failures.push(`  ${String(error.message).trim().split("\n").slice(0, 2).join(" ")}`);
    }
  }
  throw new Error(
    `no browser could be started. Install one (Debian, Ubuntu: apt-get install chromium), or name one: \
TIDEGATE_BROWSER=/path/to/chrome. What was tried:\n${failures.join("\n")}`,
  );
}

/** Each a way to a browser, the likeliest first. */
function candidates() {
  const named = process.env.TIDEGATE_BROWSER;
  if (named) {
    return [async () => ({ executablePath: named })];
  }
  const found = [...INSTALLED.flatMap(onPath), ...APPLICATIONS].filter(isExecutable);
  const installed = found.map((executablePath) => async () => ({ executablePath }));
  return process.platform === "linux" ? [...installed, packaged] : installed;
}

/** Chromium for bare Linux machines, with the libraries that these lack. */
async function packaged() {
  process.env.AWS_EXECUTION_ENV ??= "AWS_Lambda_nodejs20.x"; // What makes it unpack those libraries.
  const { default: chromium } = await import("@sparticuz/chromium");
  const executablePath = await chromium.executablePath();
  return { executablePath, args: chromium.args, env: { HOME: mkdtempSync(path.join(tmpdir(), "tidegate-browser-")) } };
}

function onPath(name) {
  return (process.env.PATH ?? "").split(path.delimiter).map((folder) => path.join(folder, name));
}

function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
