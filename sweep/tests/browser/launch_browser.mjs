// Launches a browser: the one that TIDEGATE_BROWSER names, otherwise an installed one or one from an
// npm package.

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
// The sandbox needs privileges that containers lack. The pages under test are trusted.
const ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];

/**
 * Launches the first candidate browser that starts, and returns it. If none starts, throws an error
 * that states how to install one.
 */
export async function launchBrowser() {
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
TIDEGATE_BROWSER=/path/to/chrome. Attempts:\n${failures.join("\n")}`,
  );
}

/**
 * Returns functions in order of preference. Each finds a browser and returns its launch options.
 */
function candidates() {
  const named = process.env.TIDEGATE_BROWSER;
  if (named) {
    return [async () => ({ executablePath: named })];
  }
  const found = [...INSTALLED.flatMap(onPath), ...APPLICATIONS].filter(isExecutable);
  const installed = found.map((executablePath) => async () => ({ executablePath }));
  return process.platform === "linux" ? [...installed, packaged] : installed;
}

/**
 * Returns launch options for Chromium from an npm package, with the libraries that minimal Linux
 * machines lack.
 */
async function packaged() {
  process.env.AWS_EXECUTION_ENV ??= "AWS_Lambda_nodejs20.x"; // Makes the package unpack those libraries.
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
