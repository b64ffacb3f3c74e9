// The page of nodes in a real Chromium. tests/nodes/page.rs starts two nodes, of which the second alone may have the
// shard gpu-shard-1, and kills and starts it when this prints `kill` and `start`.
//
//   node tests/browser/nodes.mjs LOGIN
//
// LOGIN is a login link of the first node. BROWSER_TOOLS names the directory with node_modules, CHROMIUM the browser. Exits with 1 if a
// check fails.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const tools = resolve(process.env.BROWSER_TOOLS ?? "target/browser");
const require = createRequire(join(tools, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const login = process.argv[2];
const { origin } = new URL(login);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext();
context.setDefaultTimeout(120_000);
const page = await context.newPage();
const outside = [];
const errors = [];
page.on("request", (request) => request.url().startsWith(`${origin}/`) || outside.push(request.url()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("console", (line) => line.type() === "error" && errors.push(line.text()));

/// Opens a session over the API with the cookie of the page; returns its id.
async function open(text, query = "") {
  const reply = await page.request.post(`${origin}/v1/sessions${query}`, { headers: { origin }, data: { input: { text } } });
  assert.ok(reply.ok(), `${reply.status()} ${await reply.text()}`);
  return (await reply.json()).session.id;
}

async function accessible(name) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(serious.map((one) => `${one.id}: ${one.nodes[0].html}`), [], name);
}

const row = (id) => page.locator(`#list #s-${id}`);
const badge = (count) => page.locator("#asks", { hasText: new RegExp(`^${count}$`) }).waitFor({ state: "attached" });
const note = page.locator("p.odd", { hasText: "No answer from gpu-shard-1:" });

try {
  await page.goto(login);
  await page.getByRole("heading", { name: "Sessions" }).waitFor();
  // Sessions of both nodes appear without a reload.
  const here = await open("quick here");
  const there = await open("quick there", "?label=gpu");
  for (const id of [here, there]) await row(id).locator(".state", { hasText: "completed" }).waitFor();

  // The session's own view is answered by its shard. It counts the approvals of the other shard too.
  const asks = await open("mark", "?label=gpu");
  await page.goto(`${origin}/s/${here}`);
  await page.locator("#entries", { hasText: "Done at once." }).waitFor();
  await badge(1);
  await page.goto(`${origin}/approvals`);
  const asked = await open("mark two");
  await page.locator(".ask").nth(1).waitFor();
  await badge(2);
  await accessible("approvals");
  for (const id of [asked, asks]) {
    const card = page.locator(`.ask[id^="ask-${id}"]`);
    // A card answers to clicks after a second in its place.
    await page.waitForTimeout(1_300);
    await card.getByRole("button", { name: "Approve once" }).click();
    await card.waitFor({ state: "detached" });
  }
  await badge("");

  // One shard is chosen, and the page stays with it.
  await page.goto(origin);
  await page.getByLabel("Shard").selectOption("gpu-shard-1");
  await page.getByRole("button", { name: "Filter" }).click();
  await row(there).waitFor();
  const later = await open("quick later", "?label=gpu");
  await row(later).waitFor();
  assert.equal(await row(here).count(), 0);
  await accessible("sessions of a shard");
  await page.getByText("New session").click();
  await page.getByLabel("First input").fill("quick form");
  await page.getByRole("button", { name: "Open" }).click();
  await page.waitForURL("**/s/*");
  const formed = page.url().split("/").at(-1);
  await page.goto(`${origin}/?shard=gpu-shard-1`);
  await row(formed).waitFor();

  // A shard without a node is named. Its rows stay where they are, and return where they are not.
  await page.getByLabel("Shard").selectOption("all");
  await page.getByRole("button", { name: "Filter" }).click();
  await row(here).waitFor();
  // A row that comes without a reload shows that the stream has the rows of the shard.
  await row(await open("quick last", "?label=gpu")).waitFor();
  console.log("kill");
  await note.waitFor();
  assert.equal(await row(there).count(), 1);
  assert.equal(await page.locator("#lost").innerText(), "");
  await page.reload();
  await note.waitFor();
  assert.deepEqual([await row(here).count(), await row(there).count()], [1, 0]);
  await accessible("sessions without a shard");
  console.log("start");
  await row(there).waitFor();
  await note.waitFor({ state: "detached" });

  assert.deepEqual(outside, []);
  assert.deepEqual(errors, []);
} catch (error) {
  console.error(error, errors, await page.locator("main").innerText().catch(() => ""));
  process.exitCode = 1;
} finally {
  await browser.close();
}
