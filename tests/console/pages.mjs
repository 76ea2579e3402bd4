// Opens each page of the console in Chromium: at the width of a phone and of a desktop, light and dark.
//
// Usage: pages.mjs WEIR SCREENSHOTS
//
// WEIR is the weir command; the pages are those of a gateway of its own. On each page, axe-core must find nothing, nothing
// may be wider than the window, the policy must block nothing, and the Tab key must reach everything. The script saves a
// screenshot of each page.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import axe from "axe-core";
import { chromium } from "playwright-core";

const [weir, screenshots] = process.argv.slice(2).map((path) => resolve(path));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const WIDTHS = [390, 1280];
const SCHEMES = ["light", "dark"];

const USER_PAGES = ["", "/playground", "/usage", "/requests", "/keys", "/money", "/swarms", "/organisations"];
const ADMIN_PAGES = [
  "", "?period=7d&group=key", "?model=none", "/requests", "/requests?status=failed", "/requests?model=none", "/models",
  "/models/demo", "/models/demo-image", "/providers/demo", "/catalog", "/catalog/history",
  "/users", "/vouchers", "/swarms", "/tools", "/plugins", "/plugins/demo", "/lockouts", "/webhooks", "/audit",
];
const PAGES = [
  ...USER_PAGES.map((path) => `/console${path}`),
  ...ADMIN_PAGES.map((path) => `/console/admin${path}`),
  "/docs", "/", "/console/nothing",
];

const problems = [];
const complain = (where, what) => {
  problems.push(`${where}: ${what}`);
  console.error(`${where}: ${what}`);
};

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

const folder = mkdtempSync(join(tmpdir(), "weir-console-"));
const config = join(folder, "weir.toml");
const port = await freePort();
const base = `http://127.0.0.1:${port}`;
writeFileSync(config, `dev = true\nlisten = "127.0.0.1:${port}"\ndata_dir = "${folder}/data"\n[content_log]\ndays = 7\n[rate_limits]\nfree = 100000\naddress = 100000\n`);

function command(...words) {
  const ran = spawnSync(weir, ["--config", config, ...words], { encoding: "utf8" });
  if (ran.status !== 0) throw new Error(`weir ${words.join(" ")}: ${ran.stderr}`);
  return ran.stdout;
}

/** The gateway's log, beside the screenshots. */
mkdirSync(screenshots, { recursive: true });
const log = openSync(join(screenshots, "weir.log"), "w");

/** A first start compiles all plugins. */
async function start() {
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.endsWith("_API_KEY")));
  const gateway = spawn(weir, ["--config", config, "serve"], { env: environment, stdio: ["ignore", log, log] });
  for (let tries = 0; tries < 6000; tries += 1) {
    if (gateway.exitCode !== null) throw new Error("the gateway has ended");
    const ready = await fetch(`${base}/health/ready`).then((answer) => answer.ok, () => false);
    if (ready) return gateway;
    await pause(100);
  }
  throw new Error("the gateway is not ready after ten minutes");
}

/** Gives the pages something to show, and returns the API key for it. */
async function use() {
  const key = command("key", "create", "--user", "alice").split(/\s+/).find((word) => word.startsWith("inf_"));
  const headers = { "x-api-key": key, "content-type": "application/json" };
  const models = await (await fetch(`${base}/models`, { headers })).json();
  const model = models.models.find((model) => model.kind === "chat").id;
  const ask = async (body) => {
    const answer = await fetch(`${base}/chat`, { method: "POST", headers, body: JSON.stringify(body) });
    await answer.text();
  };
  const messages = [{ role: "user", content: "Hello" }];
  for (let turn = 0; turn < 8; turn += 1) await ask({ model, messages, stream: turn % 2 === 0 });
  for (let turn = 0; turn < 3; turn += 1) await ask({ model: "no-such-model", messages });
  const tokens = command("token", "web", "--user", "root", "--admin").split("'").filter((part) => part.includes(": "));
  const admin = Object.fromEntries([...tokens.map((header) => header.split(": ")), ["content-type", "application/json"]]);
  const contents = { models: { [model]: { price: { input: 3 } } } };
  const body = JSON.stringify({ base_version: 0, contents });
  const changed = await fetch(`${base}/admin/catalog/layer`, { method: "PUT", headers: admin, body });
  if (!changed.ok) throw new Error(`the catalog does not change: ${await changed.text()}`);
  return key;
}

/** Makes a key whose prompts and responses are stored, uses it, and returns the pages of its request. */
async function talk(page) {
  await page.goto(`${base}/console/keys`);
  await page.click("form[action='/console/keys'] button.main");
  await page.waitForURL(`${base}/console/keys/made`);
  const [key] = (await page.content()).match(/inf_[\w-]{40,}/);
  await page.goto(`${base}/console/keys`);
  await page.click("details:has(form[action$='/content-log']) summary");
  await page.click("form[action$='/content-log'] button");
  await page.waitForSelector("text=Stop storing");
  const messages = [
    { role: "system", content: "Answer kindly, and briefly." },
    { role: "user", content: `What is a weir?\n${"It is a low dam across a river. ".repeat(20)}` },
  ];
  const headers = { "x-api-key": key, "content-type": "application/json" };
  const body = JSON.stringify({ model: "demo", messages, temperature: 0.5 });
  const answer = await fetch(`${base}/chat`, { method: "POST", headers, body });
  await answer.text();
  const id = answer.headers.get("x-request-id");
  const path = `/console/requests/${id}`;
  for (let tries = 0; tries < 100; tries += 1) {
    const shown = await page.goto(base + path);
    if (shown.ok() && (await page.content()).includes("What is a weir?")) {
      return [path, `/console/admin/requests/${id}`, `/console/admin/requests/${id}?content=show`];
    }
    await pause(100);
  }
  throw new Error("the content of a request is not there");
}

/** Presses Tab until the focus is back at the page's start, and returns the elements that it has not reached. */
async function unreached(page) {
  await page.evaluate(() => {
    document.activeElement?.blur();
    const wanted = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    window.unreached = new Set([...document.querySelectorAll(wanted)].filter((element) => {
      const isRadio = element.type === "radio" && !element.checked;
      return !element.disabled && !isRadio && element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
    }));
    window.steps = window.unreached.size + 10;
  });
  const steps = await page.evaluate(() => window.steps);
  for (let step = 0; step < steps; step += 1) {
    await page.keyboard.press("Tab");
    const left = await page.evaluate(() => {
      window.unreached.delete(document.activeElement);
      return window.unreached.size;
    });
    if (left === 0) return [];
  }
  return page.evaluate(() => [...window.unreached].map((element) => element.outerHTML.slice(0, 120)));
}

/** Searches the documentation, and sends a request with a key from it. */
async function tryOut(page, key, where, suffix) {
  await page.goto(`${base}/docs`);
  await page.fill("#words", "prompt_tokens temperature");
  const found = await page.textContent("#found");
  if (!/^[1-9]\d* operations? and \d+ schemas?$/.test(found)) complain(where, `the search has found: ${found}`);
  await page.screenshot({ path: join(screenshots, `docs-search-${suffix}.png`) });
  await page.fill("#words", "create_chat_completion");
  await page.click("#hits a");
  await page.fill("#words", "");
  await page.fill("#proof-apiKey", key);
  const operation = page.locator("#create_chat_completion");
  await operation.locator("[data-try] > summary").click();
  await operation.locator("[data-try] button.main").click();
  const status = operation.locator("[data-status]");
  await status.filter({ hasText: "Status" }).waitFor({ timeout: 30000 });
  if (!(await status.textContent()).startsWith("Status 200")) complain(where, await status.textContent());
  const shown = await operation.locator("[data-result] pre").textContent();
  if (JSON.parse(shown).object !== "chat.completion") complain(where, shown);
  await operation.screenshot({ path: join(screenshots, `docs-try-${suffix}.png`) });
}

async function visit(page, path, where) {
  const answer = await page.goto(base + path, { waitUntil: "load" });
  if (answer.status() !== 200 && path !== "/console/nothing") complain(where, `status ${answer.status()}`);
  await inspect(page, where);
}

async function inspect(page, where) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, nodes } of violations) complain(where, `axe ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
  const wide = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const all = [...document.querySelectorAll("body *")];
    return all.filter((element) => element.getBoundingClientRect().right > width + 1).map((element) => element.outerHTML.slice(0, 120));
  });
  if (wide.length) complain(where, `wider than the window: ${wide.slice(0, 4).join(" | ")}`);
  // A figure in two lines is hard to read.
  const broken = await page.evaluate(() => [...document.querySelectorAll(".figure, .number")]
    .filter((element) => element.checkVisibility() && element.getClientRects().length && element.offsetHeight > 0)
    .filter((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 8)));
      return lines.size > 2;
    }).map((element) => element.textContent));
  if (broken.length) complain(where, `broken figures: ${broken.slice(0, 4).join(" | ")}`);
}

const gateway = await start();
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
let talked;
try {
  const key = await use();
  for (const scheme of SCHEMES) {
    for (const width of WIDTHS) {
      const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 844 } });
      const page = await context.newPage();
      let where = "";
      page.on("console", (message) => {
        const isMissing = message.text().includes("404");
        if (message.type() === "error" && !isMissing) complain(where, message.text());
      });
      page.on("pageerror", (error) => complain(where, `${error}`));
      where = "the link";
      await page.goto(command("console", "--url", base).trim());
      await page.waitForURL(`${base}/console`);
      talked ??= await talk(page);
      for (const path of [...PAGES, ...talked]) {
        where = `${path} at ${width} px, ${scheme}`;
        await visit(page, path, where);
        const name = path.replace(/req_[0-9a-f]+/, "one").replace(/^\//, "").replace(/[^a-z0-9]+/g, "-") || "welcome";
        await page.screenshot({ path: join(screenshots, `${name}-${width}-${scheme}.png`), fullPage: path !== "/docs" });
        if (scheme === "light" && path !== "/docs") {
          const missed = await unreached(page);
          if (missed.length) complain(where, `Tab does not reach ${missed.join(" | ")}`);
        }
      }
      where = `the review at ${width} px, ${scheme}`;
      await page.goto(`${base}/console/admin/models/demo`);
      await page.fill("#price_model_input", "7");
      await page.click("text=Review the price");
      await page.waitForSelector("text=Confirm");
      await inspect(page, where);
      await page.screenshot({ path: join(screenshots, `review-${width}-${scheme}.png`), fullPage: true });
      where = `the refresh at ${width} px, ${scheme}`;
      await page.goto(`${base}/console/admin`);
      await page.click("#summary-requests");
      const refreshed = await page.waitForResponse((answer) => answer.url().includes("/console/admin/overview"), { timeout: 60000 });
      if (!refreshed.ok()) complain(where, `status ${refreshed.status()}`);
      await page.waitForFunction(() => document.querySelectorAll(".plot canvas").length === 5, null, { timeout: 10000 })
        .catch(() => complain(where, "the charts are gone"));
      const isOpen = await page.evaluate(() => document.getElementById("table-requests").open);
      if (!isOpen) complain(where, "the open table has closed");
      where = `a search and a request in the documentation at ${width} px, ${scheme}`;
      await tryOut(page, key, where, `${width}-${scheme}`);
      await context.close();
    }
  }
} finally {
  await browser.close();
  gateway.kill("SIGTERM");
  await once(gateway, "exit");
  rmSync(folder, { recursive: true, force: true });
}
console.log(problems.length ? `${problems.length} problems` : `no problems; the screenshots are in ${screenshots}`);
process.exit(problems.length ? 1 : 0);
