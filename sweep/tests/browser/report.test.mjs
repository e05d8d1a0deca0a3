// Tests the report in a real browser: offline, light and dark, wide and narrow, in print, and
// without its script.
//
// `cargo test -p tidegate-sweep --test report` writes the pages. TIDEGATE_SCREENSHOTS=FOLDER keeps
// the screenshots.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { launchBrowser } from "./launch_browser.mjs";
import { countColours, findMisplacedMarks, findOverflow } from "./page_checks.mjs";

const PAGES = path.resolve(
  process.env.TIDEGATE_REPORTS ?? path.join(import.meta.dirname, "../../../target/tmp/sweep-report"),
);
const SHOTS = process.env.TIDEGATE_SCREENSHOTS;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const LOOKS = [
  { look: "light", width: 1280, scheme: "light" },
  { look: "dark", width: 1280, scheme: "dark" },
  { look: "narrow", width: 390, scheme: "light" },
  { look: "narrow-dark", width: 360, scheme: "dark" },
];
const ANSWERS = {
  limit: "Hold the cap at 24",
  saturation: "Hold the cap at 97",
  rate: "Cap 12 is not confirmed",
  nothing: "No cap can be recommended",
  engine: "Cap 16 is not confirmed",
  hostile: "Hold the cap at 24",
};

const pages = existsSync(PAGES) ? readdirSync(PAGES).filter((name) => name.endsWith(".html")) : [];
let browser;
before(async () => {
  assert.ok(pages.length > 0, `no pages in ${PAGES}: cargo test -p tidegate-sweep --test report writes them`);
  browser = await launchBrowser();
});
after(() => browser?.close());

/**
 * Opens a page offline. Returns the page and a list, `heard`, of its requests for other URLs,
 * console messages, errors and dialogs. `script` states whether the page's script runs.
 */
async function opened(file, { width = 1280, scheme = "light", media = "screen", script = true } = {}) {
  const page = await browser.newPage();
  const heard = [];
  const url = pathToFileURL(path.join(PAGES, file)).href;
  page.on("console", (message) => heard.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => heard.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => heard.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
  page.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) heard.push(`asked for ${request.url()}`);
  });
  await page.setJavaScriptEnabled(script);
  await page.setOfflineMode(true);
  await page.setViewport({ width, height: 900 });
  // Set together, because puppeteer's separate functions for the two override each other.
  const features = [{ name: "prefers-color-scheme", value: scheme }];
  await (await page.createCDPSession()).send("Emulation.setEmulatedMedia", { media, features });
  await page.goto(url, { waitUntil: "load" });
  return { page, heard };
}

for (const file of pages) {
  const name = path.basename(file, ".html");
  for (const { look, width, scheme } of LOOKS) {
    test(`${name}, ${look}: shows the answer within the page, and makes no request`, async () => {
      const { page, heard } = await opened(file, { width, scheme });
      const text = await page.evaluate(() => document.body.innerText);
      assert.ok(text.includes(ANSWERS[name] ?? "cap"), "the page contains the answer");
      assert.deepEqual(await page.evaluate(findMisplacedMarks), []);
      assert.deepEqual(await page.evaluate(findOverflow), []);
      assert.deepEqual(heard, []);
      const picture = Buffer.from(await page.screenshot({ fullPage: true }));
      await page.close();
      await isNoBlank(picture, width);
      keep(picture, `${name}-${look}`);
    });
  }

  test(`${name}: escapes outside text`, async () => {
    const { page } = await opened(file);
    const [title, images, scripts] = await page.evaluate(() => [
      document.title,
      document.images.length,
      document.scripts.length,
    ]);
    assert.ok(title.endsWith("Tidegate sweep"));
    assert.equal(images, 0);
    assert.ok(scripts <= 1);
    await page.close();
  });

  test(`${name}: is accessible, in light and dark`, async () => {
    for (const scheme of ["light", "dark"]) {
      const { page } = await opened(file, { scheme });
      await page.evaluate(AXE);
      const violations = await page.evaluate(async () => {
        const found = await globalThis.axe.run();
        return found.violations.map((v) => `${v.id}: ${v.nodes.map((node) => node.html.slice(0, 100)).join(" | ")}`);
      });
      assert.deepEqual(violations, []);
      await page.close();
    }
  });

  test(`${name}: shows the same text without its script`, async () => {
    const told = [];
    for (const script of [true, false]) {
      const { page } = await opened(file, { script });
      told.push((await page.$eval("main", (main) => main.innerText)).replace(/\n?Copy\n?/, "\n").replace(/\s+/g, " "));
      await page.close();
    }
    assert.equal(told[0], told[1]);
  });

  test(`${name}: prints dark on white in every colour scheme`, async () => {
    const { page } = await opened(file, { media: "print", scheme: "dark", width: 794 });
    assert.deepEqual(await page.evaluate(findMisplacedMarks), []);
    const ink = await page.$eval("h1", (heading) => getComputedStyle(heading).color);
    const [red] = ink.match(/\d+/g);
    assert.ok(Number(red) < 64, `expected dark text on paper, found ${ink}`);
    assert.ok((await page.pdf({ format: "A4" })).length > 10_000);
    await page.close();
  });
}

test("the copy button copies the configuration, or selects it if the clipboard is not available", async () => {
  const { page } = await opened("limit.html");
  await page.click(".copy");
  await page.waitForFunction(() => document.querySelector(".copy").textContent !== "Copy");
  const [said, selected, lines] = await page.evaluate(() => [
    document.querySelector(".copy").textContent,
    String(getSelection()),
    document.querySelector(".lines").textContent,
  ]);
  assert.ok(said === "Copied" || (said === "Selected" && selected.trim() === lines.trim()), `${said}: ${selected}`);
  await page.close();
});

async function isNoBlank(picture, width) {
  const blank = await browser.newPage();
  const seen = await blank.evaluate(countColours, picture.toString("base64"));
  await blank.close();
  assert.ok(seen.colours >= 10, `${seen.colours} colours are too few for a page with content`);
  assert.equal(seen.width, width);
  assert.ok(seen.height > 500, `${seen.height} pixels are too low`);
}

function keep(picture, name) {
  if (SHOTS) {
    mkdirSync(SHOTS, { recursive: true });
    writeFileSync(path.join(SHOTS, `${name}.png`), picture);
  }
}
