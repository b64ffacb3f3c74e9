// The page in a real Chromium, against a live host with a scripted model, and one with a small language model.
//
//   node tests/browser/page.mjs [--pictures DIR]
//
// SUBTEND names the binary, BROWSER_TOOLS the directory with node_modules, SUBTEND_PROVIDER_SERVERS the one with the model's server,
// CHROMIUM the browser. Exits with 1 if a check fails.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const tools = resolve(process.env.BROWSER_TOOLS ?? "target/browser");
const require = createRequire(join(tools, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const servers = resolve(process.env.SUBTEND_PROVIDER_SERVERS ?? "target/provider-servers");
const binary = resolve(process.env.SUBTEND ?? "target/debug/subtend");
const pictures = process.argv[2] === "--pictures" ? resolve(process.argv[3]) : undefined;
const NARROW = { width: 360, height: 780 };
const WIDE = { width: 1280, height: 860 };

const dir = mkdtempSync(join(tmpdir(), "subtend-browser-"));
const workspace = join(dir, "workspace");
mkdirSync(workspace);
writeFileSync(join(workspace, "README.md"), "# Sample\n");
for (const args of [["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]]) {
  execFileSync("git", ["-c", "user.name=p", "-c", "user.email=p@localhost", ...args], { cwd: workspace });
}
// Its path is wider than the narrow page.
const other = join(dir, "a-directory-with-a-long-name-as-projects-of-users-have-them");
mkdirSync(other);
copyFileSync(join(here, "script.json"), join(workspace, "script.json"));
// The user configuration of this test.
const settings = join(dir, "config");
mkdirSync(join(settings, "subtend"), { recursive: true });
writeFileSync(join(settings, "subtend", "subtend.yaml"), "subagents:\n  messages: true\ntools:\n  minion: {enabled: true}\n");
if (pictures) mkdirSync(pictures, { recursive: true });

/// Starts a process; resolves with it and the first line of its output that fits.
function started(command, args, options, fits) {
  const child = spawn(command, args, options);
  return new Promise((done, failed) => {
    let out = "";
    child.stdout.on("data", (bytes) => {
      out += bytes;
      const line = out.split("\n").slice(0, -1).find(fits);
      if (line) done({ child, line });
    });
    child.on("error", failed);
    child.on("exit", (code) => failed(new Error(`${command} ended with ${code}`)));
  });
}

/// Starts a host in `cwd`; resolves with its process and its login link.
async function serve(store, cwd, args, listen = "127.0.0.1:0") {
  const env = { ...process.env, XDG_CONFIG_HOME: settings, OPENAI_API_KEY: "sk-not-checked" };
  const all = ["serve", "--json", "--listen", listen, "--store", `redb:${join(dir, store)}`, ...args];
  const { child, line } = await started(binary, all, { cwd, env, stdio: ["ignore", "pipe", "inherit"] }, () => true);
  return { host: child, ...JSON.parse(line) };
}

async function stop(child, signal = "SIGTERM") {
  child.removeAllListeners("exit");
  const ended = new Promise((done) => child.once("exit", done));
  child.kill(signal);
  await ended;
}

const scripted = ["--model", "scripted:script.json", "--ask", "shell.run", "--allow", "fs.write=*"];
let { host, address, login } = await serve("store", workspace, scripted);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
context.setDefaultTimeout(30_000);
const page = await context.newPage();
const outside = [];
const errors = [];
page.on("request", (request) => new URL(request.url()).host === address || outside.push(request.url()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("console", (line) => {
  if (line.type() === "error" && !/status of (401|404|409|410|422)/.test(line.text())) errors.push(line.text());
});

/// Fails if axe-core reports a serious problem, in light and dark mode and at two widths.
async function accessible(name) {
  for (const [scheme, size] of [["light", WIDE], ["dark", WIDE], ["light", NARROW], ["dark", NARROW]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize(size);
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
    // The accessible name of a tree line excludes the lines below it, but the rule compares it with both.
    const nested = (one) => one.id === "label-content-name-mismatch" && one.nodes.every((node) => node.html.includes('role="treeitem"'));
    const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact) && !nested(one));
    const shown = serious.map((one) => `${one.id}: ${one.help} ${one.nodes.slice(0, 3).map((node) => node.html).join(" ")}`);
    assert.deepEqual(shown, [], `${name}, ${scheme}, ${size.width} px`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} is ${wide} px too wide at ${size.width} px`);
    if (pictures) await page.screenshot({ path: join(pictures, `${name}-${scheme}-${size.width}.png`) });
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(WIDE);
}

/// Does something that makes the browser report failed requests.
async function failing(what) {
  const from = errors.length;
  await what();
  errors.push(...errors.splice(from).filter((line) => !/^htmx: htmx:|^Failed to load resource: /.test(line)));
}

/// Calls the API with the cookie of the page.
async function api(method, path, data) {
  const origin = `http://${address}`;
  const reply = await page.request.fetch(`${origin}${path}`, { method, headers: { origin }, data });
  assert.ok(reply.ok(), `${method} ${path}: ${reply.status()} ${await reply.text()}`);
  return JSON.parse((await reply.text()) || "null");
}

/// Opens a session without a title; returns its id.
async function untitled() {
  return (await api("POST", "/v1/sessions", { agent: "general" })).session.id;
}

async function open(text, fields = {}, agent = "general") {
  await page.goto(`http://${address}/`);
  await page.getByText("New session").click();
  await page.getByLabel("Agent").selectOption(agent);
  for (const [name, value] of Object.entries(fields)) await page.locator(`form.stack input[name="${name}"]`).fill(value);
  await page.getByLabel("First input").fill(text);
  await page.getByRole("button", { name: "Open" }).click();
  await page.waitForURL("**/s/*");
  return page.url();
}

/// Waits until the cards of approvals answer to clicks: after a second in their places.
const inPlace = () => page.waitForTimeout(1_300);

let checks = 0;
const failures = [];
async function check(name, what) {
  const from = Date.now();
  try {
    await what();
  } catch (error) {
    await page.screenshot({ path: join(pictures ?? dir, `failed ${name}.png`) }).catch(() => {});
    failures.push(name);
    console.error(`FAILED ${name}: ${error.message}`);
    return;
  }
  checks += 1;
  console.log(`ok ${name} (${Date.now() - from} ms)`);
}

async function all() {
  await check("page is closed without a login", async () => {
    const refused = await page.goto(`http://${address}/`);
    assert.equal(refused.status(), 401);
    await page.getByRole("heading", { name: "Unauthorized" }).waitFor();
  });
  await check("login link opens one browser once", async () => {
    await page.goto(login);
    assert.equal(page.url(), `http://${address}/`);
    const other = await browser.newContext();
    assert.equal((await (await other.newPage()).goto(login)).status(), 401);
    await other.close();
    await page.getByRole("heading", { name: "Sessions" }).waitFor();
  });

  let tree;
  await check("fan-out of 50 children is followed in the tree", async () => {
    const session = await open("Survey the project");
    tree = `${session}/tree`;
    await page.goto(tree);
    await page.waitForFunction(() => document.querySelectorAll('[role="treeitem"]').length === 51);
    await page.locator('[role="treeitem"] .state', { hasText: "completed" }).nth(4).waitFor();
    await page.getByText("of its children").waitFor();
  });
  if (pictures) await page.screenshot({ path: join(pictures, "tree.png") });
  await check("tree is operated by keys", async () => {
    const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-level"));
    await page.locator('[role="treeitem"][tabindex="0"]').focus();
    assert.equal(await focused(), "1");
    await page.keyboard.press("ArrowRight");
    assert.equal(await focused(), "2");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await focused(), "1");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.locator('[role="treeitem"][aria-level="1"]').getAttribute("aria-expanded"), "false");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator('[role="treeitem"][aria-level="2"]').first().isVisible(), true);
  });
  await check("children of a line are loaded when it is opened", async () => {
    const session = await open("Three levels");
    await page.locator("#head .state", { hasText: "completed" }).waitFor();
    await page.goto(`${session}/tree`);
    const levels = () => page.locator('[role="treeitem"]').evaluateAll((items) =>
      items.map((item) => [item.getAttribute("aria-level"), item.getAttribute("aria-expanded")]));
    assert.deepEqual(await levels(), [["1", "true"], ["2", "false"]]);
    await page.locator('[role="treeitem"][tabindex="0"]').focus();
    await page.keyboard.press("ArrowDown");
    await failing(async () => {
      await page.route("**/kids?*", (route) => route.abort());
      await page.keyboard.press("ArrowRight");
      await page.locator("#said", { hasText: "The host does not answer: try again." }).waitFor();
      await page.unroute("**/kids?*");
    });
    // The next try succeeds.
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowRight");
    await page.locator('[role="treeitem"][aria-level="3"]').waitFor();
    assert.deepEqual(await levels(), [["1", "true"], ["2", "true"], ["3", null]]);
  });
  await check("running child is steered", async () => {
    await page.goto(tree.replace(/\/tree$/, ""));
    const kid = page.locator("#kids li", { hasText: "Part 1." });
    const link = await kid.getByRole("link").getAttribute("href");
    await kid.getByText("Steer or cancel").click();
    await kid.getByRole("textbox").fill("only tests count");
    await kid.getByRole("button", { name: "Steer" }).click();
    await page.locator("#said", { hasText: "Accepted" }).waitFor();
    await page.goto(`http://${address}${link}`);
    await page.locator("#entries", { hasText: "only tests count" }).waitFor();
  });
  await check("subtree is cancelled after a confirmation", async () => {
    await page.goto(tree.replace(/\/tree$/, ""));
    await page.locator("#head summary", { hasText: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel this run" }).click();
    await page.locator("#head .state", { hasText: "cancelled" }).waitFor();
    await page.goto(tree);
    await page.locator('[role="treeitem"][aria-level="1"] > .row .state', { hasText: "cancelled" }).waitFor();
    await page.waitForFunction(() => ![...document.querySelectorAll(".row .state")].some((state) => state.textContent === "working"));
  });
  await check("tree is accessible", () => accessible("tree"));

  let command;
  await check("shell command is approved as it is shown", async () => {
    command = await open("Run the command");
    const card = page.locator(".entry.ask");
    await card.waitFor();
    assert.match(await card.locator("pre").innerText(), /printf '<b>%s<\/b>\\\\n' approved/);
    if (pictures) {
      // With all buttons.
      await page.setViewportSize({ ...WIDE, height: 1220 });
      await page.screenshot({ path: join(pictures, "approval.png") });
      await page.setViewportSize(WIDE);
    }
    await page.goto(`http://${address}/approvals`);
    assert.equal(await page.locator(".entry.ask").count(), 1);
    await accessible("approvals");
    await inPlace();
    await page.getByRole("button", { name: "Approve once" }).click();
    await page.locator("#said", { hasText: "Approved once." }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".entry.ask").length === 0);
    await page.goto(command);
    await page.locator(".call summary").click();
    await page.locator(".call pre", { hasText: "<b>approved</b>" }).waitFor();
    assert.equal(await page.locator(".call pre b").count(), 0);
  });
  await check("conversation is accessible", () => accessible("conversation"));

  await check("approvals at different places are answered at once", async () => {
    const session = await open("Run two long ones");
    const cards = page.locator(".entry.ask");
    await cards.nth(1).waitFor();
    // All of a long command is above the buttons.
    const cut = await cards.first().locator("pre").evaluate((pre) => pre.scrollHeight - pre.clientHeight);
    assert.equal(cut, 0);
    await page.goto(`http://${address}/approvals`);
    await cards.nth(1).waitFor();
    await inPlace();
    await page.evaluate(() => document.querySelectorAll(".ask button.main").forEach((button) => button.click()));
    await page.waitForFunction(() => document.querySelectorAll(".entry.ask").length === 0);
    await page.goto(session);
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    assert.deepEqual(await page.locator("#entries .call > summary .state").allInnerTexts(), ["ok", "ok"]);
  });
  await check("click at the place of an answered approval answers no other", async () => {
    const session = await open("Run two short ones");
    await page.goto(`http://${address}/approvals`);
    await page.locator(".entry.ask").nth(1).waitFor();
    await inPlace();
    // Clicks the same place as soon as the second call has moved there.
    const under = await page.evaluate(() => new Promise((done) => {
      const first = document.querySelector(".ask button.main");
      const { left, top, width, height } = first.getBoundingClientRect();
      new MutationObserver((_, observer) => {
        if (document.querySelectorAll(".ask").length !== 1) return;
        observer.disconnect();
        const button = document.elementFromPoint(left + width / 2, top + height / 2).closest(".ask button");
        button?.click();
        done(button?.innerText);
      }).observe(document.querySelector("#cards"), { childList: true, subtree: true });
      first.click();
    }));
    assert.equal(under, "Approve once");
    await page.locator("#said", { hasText: "This call has just moved here: read it, then answer it." }).waitFor();
    assert.match(await page.locator(".ask pre").innerText(), /echo two/);
    await page.reload();
    await inPlace();
    await page.getByRole("button", { name: "Deny" }).click();
    await page.locator("#said", { hasText: "Denied." }).waitFor();
    await page.goto(session);
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    assert.deepEqual(await page.locator("#entries .call > summary .state").allInnerTexts(), ["ok", "denied"]);
  });
  // The control is the check before: a card that stays in its place is answered.
  await check("click on a card that has just appeared or moved answers nothing", async () => {
    const session = await open("Run after an answer");
    const card = page.locator("article[data-ask]");
    await card.waitFor();
    // The answer before the call names classes of the page.
    assert.deepEqual(await page.locator("#entries .md pre code").evaluateAll((codes) => codes.map((code) => code.className)), ["", ""]);
    const moved = page.locator("#said", { hasText: "This call has just moved here: read it, then answer it." });
    const deny = () => document.querySelector("[data-ask] button.danger").click();
    await page.reload();
    await card.waitFor();
    await page.evaluate(deny);
    await moved.waitFor();
    await inPlace();
    await page.evaluate(`document.querySelector("#entries").append("More above"); (${deny})()`);
    await moved.waitFor();
    await inPlace();
    // Messages that arrive while the user is at the end: one that scrolls the view moves the card on the screen.
    await page.evaluate(() => {
      document.querySelector("#entries").style.minHeight = "1200px";
      window.message = (change) => {
        document.dispatchEvent(new Event("htmx:sse:before:message"));
        change();
        document.dispatchEvent(new Event("htmx:sse:after:message"));
      };
      window.scrollTo(0, document.documentElement.scrollHeight);
    });
    await inPlace();
    await page.evaluate(`message(() => { document.querySelector("#main").style.paddingBottom = "60px"; }); (${deny})()`);
    await moved.waitFor();
    // Others change only what the children do.
    await page.evaluate(() => {
      const change = () => { document.querySelector("#kids").textContent = `Part 1, ${performance.now()}`; };
      window.messages = setInterval(() => message(change), 200);
    });
    await inPlace();
    // A scroll of the user moves no card.
    await page.evaluate(`clearInterval(messages); window.scrollTo(0, 0); (${deny})()`);
    await page.locator("#said", { hasText: "Denied." }).waitFor();
    assert.equal(page.url(), session);
  });
  await check("refusal within the page is its text", async () => {
    const id = await untitled();
    await page.goto(`http://${address}/s/${id}`);
    await page.getByLabel("Message").fill("Too late");
    await failing(async () => {
      await api("DELETE", `/v1/sessions/${id}`);
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.locator("#said", { hasText: "is deleted" }).waitFor();
      await page.locator("#lost", { hasText: "This session is deleted." }).waitFor();
    });
    assert.equal(await page.locator("#said").innerText(), `session ${id} is deleted`);
    assert.equal(await page.locator("header.top").count(), 1);
  });

  await check("old messages are compacted and shown to models again", async () => {
    await open(`Greet ${"and greet ".repeat(60)}`);
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    await page.getByLabel("Message").fill("And now?");
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator("#entries", { hasText: "run 2 completed" }).waitFor();
    await page.locator("#head summary", { hasText: "Compact…" }).click();
    await page.getByRole("button", { name: "Summarise old messages" }).click();
    await page.locator("#said", { hasText: "Compacted 2 messages" }).waitFor();
    await page.locator("#entries .hidden", { hasText: "and greet" }).first().waitFor();
    await page.locator("#head summary", { hasText: "Undo compaction…" }).click();
    await page.getByRole("button", { name: "Let models see" }).click();
    await page.locator("#said", { hasText: "is undone" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll("#entries .hidden").length === 0);
  });

  await check("answer streams without shifting what is read", async () => {
    await open("Tell a story");
    await page.evaluate(() => {
      window.shift = 0;
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.shift += entry.value;
      }).observe({ type: "layout-shift", buffered: false });
    });
    await page.locator("#streaming", { hasText: "The first sentence" }).waitFor();
    await page.locator("#streaming code", { hasText: "streamed" }).waitFor();
    await page.reload();
    // Text that was sent earlier is shown, and the rest follows.
    await page.locator("#streaming", { hasText: "The first sentence" }).waitFor();
    await page.locator("#entries", { hasText: "The end of the story." }).waitFor();
    assert.equal(await page.locator("#streaming").innerText(), "");
    assert.equal(await page.locator("#entries .answer").count(), 1);
    const text = await page.locator("#entries .answer .md").innerText();
    for (const part of ["The first sentence", "streamed", "This paragraph comes late", "The end of the story."]) {
      assert.equal(text.split(part).length, 2, part);
    }
    assert.match(text, /<script>window\.pwned = true<\/script>/);
    assert.match(text, /<div hx-get="\/agents" hx-trigger="load" hx-target="#main">attributes<\/div>/);
    assert.equal(await page.locator("#entries").getByRole("link", { name: "A picture" }).getAttribute("href"), "http://192.0.2.1/a.png");
    assert.match(text, /is a link, a file src\/a\.rs and a script javascript:window\.pwned=true are none\./);
    assert.equal(await page.locator("#entries .md a").count(), 1);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
  });
  for (const size of [{ width: 360, height: 640 }, { width: 1280, height: 560 }]) {
    await check(`streamed answer causes no layout shift at ${size.width} px`, async () => {
      const id = await untitled();
      await page.setViewportSize(size);
      await page.goto(`http://${address}/s/${id}`);
      await page.getByRole("heading", { name: /^general / }).waitFor();
      await page.evaluate(() => {
        window.shifts = [];
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) {
            const moved = entry.sources.map((source) => source.node?.id || source.node?.className || source.node?.nodeName);
            window.shifts.push({ value: entry.value, moved });
          }
        }).observe({ type: "layout-shift", buffered: false });
      });
      await api("POST", `/v1/sessions/${id}/inputs`, { text: "Tell a story" });
      await page.locator("#streaming", { hasText: "streamed" }).waitFor();
      // A person who has scrolled to the end stays there.
      await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
      await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
      const left = () => document.documentElement.scrollHeight - window.innerHeight - window.scrollY;
      assert.ok((await page.evaluate(left)) <= 1);
      const shifts = await page.evaluate(() => window.shifts);
      const sum = shifts.reduce((sum, shift) => sum + shift.value, 0);
      assert.ok(sum < 0.05, JSON.stringify(shifts));
      await page.setViewportSize(WIDE);
    });
  }

  await check("message that is sent twice in a moment is sent once", async () => {
    await page.goto(`http://${address}/s/${await untitled()}`);
    await page.getByLabel("Message").fill("Say it once");
    await page.getByRole("button", { name: "Send", exact: true }).dblclick();
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    await page.getByLabel("Message").fill("Say the next");
    await page.keyboard.press("Control+Enter");
    await page.locator("#entries", { hasText: "run 2 completed" }).waitFor();
    const inputs = page.locator("#entries .entry.input .text");
    assert.deepEqual(await inputs.allInnerTexts(), ["Say it once", "Say the next"]);
  });
  let held;
  await check("queued message is removed, and a run is interrupted", async () => {
    held = await open("Please hang");
    await page.locator("#head .state", { hasText: "working" }).waitFor();
    await page.getByLabel("Message").fill("Not needed");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const entry = page.locator("#queue li", { hasText: "Not needed" });
    await entry.getByRole("button", { name: "Remove" }).click();
    await page.locator("#said", { hasText: "Removed." }).waitFor();
    await entry.waitFor({ state: "detached" });
    // Escape takes the question back.
    const interrupt = page.locator("#head summary", { hasText: "Interrupt…" });
    await interrupt.focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("details.sure[open]").count(), 0);
    assert.equal(await interrupt.evaluate((summary) => summary === document.activeElement), true);
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator("#said", { hasText: "Interrupted run 1." }).waitFor();
    await page.locator("#head .state", { hasText: "interrupted" }).waitFor();
  });
  await check("interrupted session is continued", async () => {
    await page.getByRole("button", { name: "Continue" }).click();
    await page.locator("#said", { hasText: "Continued with run" }).waitFor();
    // The script of this session hangs again.
    await page.locator("#head .state", { hasText: "working" }).waitFor();
    await page.locator("#head summary", { hasText: "Interrupt…" }).click();
    await page.getByRole("button", { name: "Interrupt this run" }).click();
    await page.locator("#said", { hasText: "Interrupted run 2." }).waitFor();
  });
  await check("answer is regenerated, and the original is chosen again", async () => {
    const session = await open("Good morning");
    await page.locator("#entries .answer", { hasText: "Hello. You said: Good morning" }).waitFor();
    await page.getByRole("button", { name: "Regenerate" }).click();
    await page.waitForURL((url) => url.href.includes("/s/") && url.href !== session);
    await page.locator("#entries .answer").waitFor();
    await page.getByRole("link", { name: /^Back to/ }).click();
    await page.waitForURL(session);
    await page.getByText("alternative 2 of 2").waitFor();
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByText("alternative 1 of 2").waitFor();
    await page.goto(`${session}/branches`);
    await page.getByRole("button", { name: "Show this one" }).click();
    await page.waitForURL(session);
    await page.getByText("alternative 2 of 2").waitFor();
  });
  await check("branch begins at a message and leads back", async () => {
    const session = await open("Before the branch");
    await page.locator("#entries .answer").waitFor();
    await page.getByRole("button", { name: "Branch from here" }).first().click();
    await page.waitForURL((url) => url.href.includes("/s/") && url.href !== session);
    await page.getByLabel("Message").fill("In the branch");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator("#entries .answer", { hasText: "In the branch" }).waitFor();
    await page.getByRole("link", { name: /^Back to/ }).click();
    await page.waitForURL(session);
    assert.equal(await page.locator("#entries .answer", { hasText: "In the branch" }).count(), 0);
  });
  await check("shell command is denied", async () => {
    await open("Run the command once more");
    await page.locator(".entry.ask").waitFor();
    await inPlace();
    await page.getByRole("button", { name: "Deny" }).click();
    await page.locator("#said", { hasText: "Denied." }).waitFor();
    await page.locator("#entries .ended, #head .state", { hasText: "completed" }).first().waitFor();
  });
  await check("worktree of a child is shown, and merged as it was shown", async () => {
    const session = await open("Delegate the work");
    await page.locator("#head .state", { hasText: "completed" }).waitFor();
    await page.goto(`${session}/branches`);
    await page.getByRole("link", { name: "Worktree" }).click();
    await page.locator(".diff .ins", { hasText: "+# <b>Changed</b>" }).waitFor();
    assert.equal(await page.locator(".diff b").count(), 0);
    await accessible("worktree");
    const view = page.url();
    // Uses only the keyboard.
    const merge = async () => {
      await page.locator("summary", { hasText: "Merge…" }).focus();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await page.waitForURL(`${view}/merge`);
    };
    const path = (await page.locator(".panel .facts").innerText()).match(/^in (.*) · merged into/)[1];
    writeFileSync(join(path, "README.md"), "# Changed later\n");
    await merge();
    await page.getByText("changed after its changes were shown").waitFor();
    assert.equal(readFileSync(join(workspace, "README.md"), "utf8"), "# Sample\n");
    await page.goto(view);
    await page.locator(".diff .ins", { hasText: "+# Changed later" }).waitFor();
    await merge();
    await page.getByRole("status").filter({ hasText: "Merged 1 file." }).waitFor();
    assert.equal(readFileSync(join(workspace, "README.md"), "utf8"), "# Changed later\n");
    await page.locator("summary", { hasText: "Discard…" }).click();
    await page.getByRole("button", { name: "Discard the worktree" }).click();
    await page.getByText("has no worktree of its own").waitFor();
    assert.equal(existsSync(path), false);
  });
  await check("message of a child links both sides", async () => {
    const session = await open("Ask the reader");
    const text = page.locator(".text", { hasText: "[message from" });
    const message = page.locator("#entries .entry", { has: text });
    await message.locator(".text", { hasText: "which <b>file</b> is meant?" }).waitFor();
    assert.equal(await page.locator("#entries b").count(), 0);
    await message.getByRole("link", { name: /^from / }).click();
    await page.waitForURL((url) => url.href.includes("/s/") && url.href !== session);
    const child = page.url();
    const call = page.locator("#entries .call", { hasText: "which <b>file</b> is meant?" });
    await call.locator("summary").focus();
    await page.keyboard.press("Enter");
    const way = call.locator("p", { hasText: "From this session to " });
    await way.waitFor();
    await accessible("message");
    assert.equal(page.url(), child);
    await way.getByRole("link").last().click();
    await page.waitForURL(session);
    await page.locator("#head .state", { hasText: "completed" }).waitFor();
  });
  await check("minion's viewer shows its result, its last words or its end", async () => {
    await open("Call the minions");
    const minions = page.locator(".minion");
    await minions.locator(".response").nth(1).waitFor({ state: "attached" });
    await page.evaluate(() => document.querySelectorAll(".call").forEach((call) => { call.open = true; }));
    const shown = (at) => minions.nth(at).innerText();
    const parts = async (at) => (await shown(at)).split("\n").filter((line) => line).slice(1);
    assert.deepEqual(await parts(0), ["Explicit result, by return", "The <b>result</b>", "Activity, 1 turn", "Copy as JSON"]);
    assert.deepEqual(await parts(1),
      ["Fallback: its last message, since it did not use return", "Activity, 1 turn", "Copy as JSON"]);
    await minions.nth(2).getByText("working").waitFor();
    assert.deepEqual(await minions.locator(".response").evaluateAll((all) => all.map((one) => one.open)), [true, false]);
    await minions.nth(0).locator("summary", { hasText: "Activity" }).click();
    await minions.nth(0).locator("li", { hasText: "called return" }).waitFor();
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await minions.nth(0).getByRole("button", { name: "Copy as JSON" }).click();
    await page.locator("#said", { hasText: "Copied." }).waitFor();
    const { minionResponse, minionUsedReturnTool } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.deepEqual({ minionResponse, minionUsedReturnTool }, { minionResponse: "The <b>result</b>", minionUsedReturnTool: true });
    await page.locator("#kids summary", { hasText: "Steer or cancel" }).click();
    await page.getByRole("button", { name: /^Cancel .* and all that it owns/ }).click();
    await minions.nth(2).getByText("ended without a result").waitFor();
    // What was opened stays open.
    assert.equal(await minions.nth(0).locator(".activity").evaluate((activity) => activity.open), true);
    await accessible("minion");
  });
  await check("failed run is rolled back with the files that were shown", async () => {
    const session = await open("Write the notes");
    await page.getByRole("link", { name: "Roll back…" }).click();
    await page.locator(".diff .del", { hasText: "-wrong notes" }).waitFor();
    await accessible("restore");
    assert.equal(existsSync(join(workspace, "notes.txt")), true);
    await page.getByRole("button", { name: "Roll back, and restore 1 file" }).press("Enter");
    await page.waitForURL(session);
    assert.equal(existsSync(join(workspace, "notes.txt")), false);
    await page.locator("#entries", { hasText: "run 1 is rolled back" }).waitFor();
  });
  await check("session is opened in another workspace, and found by it", async () => {
    await open("Elsewhere", { workspace: other });
    await page.locator("#head .facts", { hasText: other }).waitFor();
    await page.goto(`http://${address}/`);
    await page.locator('select[name="workspace"]').selectOption(other);
    await page.getByRole("button", { name: "Filter" }).click();
    await page.locator("#list", { hasText: "Elsewhere" }).waitFor();
    assert.equal(await page.locator("#list", { hasText: "Good morning" }).count(), 0);
    await page.goto(`http://${address}/?q=morning`);
    await page.locator("#list", { hasText: "Good morning" }).waitFor();
    assert.equal(await page.locator("#list", { hasText: "Elsewhere" }).count(), 0);
  });
  await check("model that does not exist is refused with the reason", async () => {
    await page.goto(`http://${address}/`);
    await page.getByText("New session").click();
    await page.locator('form.stack input[name="model"]').fill("pool:none");
    await page.getByLabel("First input").fill("x");
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByText("none", { exact: false }).first().waitFor();
    assert.equal(new URL(page.url()).pathname, "/open");
  });

  await check("alert stays until the stream is back, and names the cause", async () => {
    const texts = {
      403: "The host refuses this page's requests, as another site may have sent them. Open the page under the address that the host printed.",
      421: "The host does not know the address of this page: open the one that it printed, or start it with --allow-host.",
      429: "Too many views of this host are open: close some. This view is not up to date.",
      503: "The host does not answer: this view is not up to date. It connects again by itself.",
    };
    const id = await untitled();
    let status = 503;
    const stream = `**/s/${id}/live?*`;
    const lost = page.locator("#lost");
    await failing(async () => {
      await page.route(stream, (route) => route.fulfill({ status, body: "refused" }));
      await page.goto(`http://${address}/s/${id}`);
      for (const [next, text] of Object.entries(texts)) {
        status = Number(next);
        await page.waitForFunction((text) => document.querySelector("#lost").textContent === text, text);
      }
      // Another request that succeeds does not make the view current.
      await page.getByLabel("Message").fill("Unseen");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.locator("#said", { hasText: "Accepted for run 1." }).waitFor();
      assert.equal(await lost.innerText(), texts[503]);
      assert.equal(await page.locator("#entries .entry").count(), 0);
      await page.unroute(stream);
      await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
      await page.waitForFunction(() => document.querySelector("#lost").textContent === "");
    });
  });
  await check("alert is not put off by more failures, and goes with the part that failed", async () => {
    await page.goto(`http://${address}/s/${await untitled()}`);
    const shown = await page.evaluate(async () => {
      const text = () => document.querySelector("#lost").textContent;
      const part = document.body.appendChild(document.createElement("div"));
      part.setAttribute("hx-trigger", "every 1s");
      const request = { method: "GET" };
      const send = (type, ctx) => ctx.sourceElement.dispatchEvent(new CustomEvent(type, { bubbles: true, detail: { ctx } }));
      for (let failure = 0; failure < 8; failure += 1) {
        send("htmx:error", { request, sourceElement: part });
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      const during = text();
      part.remove();
      send("htmx:after:request", { request, response: { status: 200 }, sourceElement: document.body });
      return [during, text()];
    });
    assert.deepEqual(shown, ["The host does not answer: this view is not up to date. It connects again by itself.", ""]);
  });
  await check("eight tabs of a browser leave each other connections", async () => {
    const id = await untitled();
    await api("POST", `/v1/sessions/${id}/inputs`, { text: "Eight tabs" });
    await page.goto(`http://${address}/s/${id}`);
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    const title = await page.title();
    // Tabs of the default context, since playwright keeps its own pages visible.
    const tabs = await browser.newBrowserCDPSession();
    const opened = [];
    const openTab = async (url, background) => opened.push((await tabs.send("Target.createTarget", { url, background })).targetId);
    const titles = async () => {
      const { targetInfos } = await tabs.send("Target.getTargets");
      return opened.map((tab) => targetInfos.find((info) => info.targetId === tab).title);
    };
    const streams = async () => {
      const metrics = await (await page.request.get(`http://${address}/metrics`)).text();
      return Number(/requests_total\{method="GET",resource="\/s\/\{id\}\/live",status="200"\} (\d+)/.exec(metrics)?.[1] ?? 0);
    };
    await tabs.send("Storage.setCookies", { cookies: await context.cookies() });
    const before = await streams();
    for (let tab = 1; tab <= 8; tab += 1) {
      await openTab(`http://${address}/s/${id}`, tab > 1);
      // Each tab has opened its stream before the next one loads.
      const until = Date.now() + 10_000;
      while (Date.now() < until && (await streams()) < before + tab);
    }
    // The browser reports the title of a tab some time after the page has it.
    const until = Date.now() + 10_000;
    while (Date.now() < until && (await titles()).some((seen) => seen !== title));
    assert.deepEqual(await titles(), Array(8).fill(title));
    for (const targetId of opened) await tabs.send("Target.closeTarget", { targetId });
    await tabs.detach();
  });
  await check("tab that was hidden catches up when it is shown", async () => {
    const id = await untitled();
    const hide = (hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    };
    const tab = await context.newPage();
    // Opened hidden.
    await tab.addInitScript(hide, true);
    const closed = tab.waitForEvent("requestfailed", (request) => request.url().includes("/live?"));
    await tab.goto(`http://${address}/s/${id}`);
    await closed;
    await api("POST", `/v1/sessions/${id}/inputs`, { text: "While hidden" });
    await page.goto(`http://${address}/s/${id}`);
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    assert.equal(await tab.locator("#entries .entry").count(), 0);
    await tab.evaluate(hide, false);
    await tab.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    const texts = (of) => of.locator("#entries .entry").allInnerTexts();
    assert.deepEqual(await texts(tab), await texts(page));
    await tab.close();
  });

  await check("page says that its host is gone, and follows the next one", async () => {
    const session = await open("Before the kill");
    await page.locator("#entries", { hasText: "run 1 completed" }).waitFor();
    const lost = page.locator("#lost");
    assert.equal(await lost.innerText(), "");
    await failing(async () => {
      await stop(host, "SIGKILL");
      await lost.filter({ hasText: "The host does not answer" }).waitFor();
      await page.getByLabel("Message").fill("Kept");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.locator("#said", { hasText: "The host does not answer" }).waitFor();
      assert.equal(await page.getByLabel("Message").inputValue(), "Kept");
      ({ host, login } = await serve("store", workspace, scripted, address));
      await lost.filter({ hasText: "The login has ended" }).waitFor();
      const tab = await context.newPage();
      assert.equal((await tab.goto(session)).status(), 401);
      assert.equal(await tab.locator("main").innerText(), [
        "Unauthorized",
        "a token is needed: send Authorization: Bearer TOKEN (`subtend token create` makes one), or open a login link",
        "unauthorized",
        "Open a login link in this browser. The host prints one when it starts, and subtend token login prints another on the machine " +
          "of the host. A login ends with its host, at the latest after 12 hours.",
      ].join("\n\n"));
      await tab.goto(login);
      await page.waitForFunction(() => document.querySelector("#lost").textContent === "");
      await tab.close();
    });
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator("#entries .answer", { hasText: "Kept" }).waitFor();
    assert.equal(await page.locator("#entries", { hasText: "Before the kill" }).count(), 1);
    assert.equal(page.url(), session);
  });
  await check("finished tree is replayed", async () => {
    await page.goto(command.replace(/$/, "/replay"));
    const slider = page.locator("#at");
    const last = Number(await slider.getAttribute("max"));
    assert.ok(last > 5);
    await page.locator("#moment", { hasText: `record ${last} of ${last}` }).waitFor();
    await page.locator("#moment", { hasText: "approved</b>" }).waitFor();
    await slider.focus();
    await page.keyboard.press("Home");
    await page.locator("#moment", { hasText: `record 1 of ${last}` }).waitFor();
    assert.equal(await page.locator("#moment article", { hasText: "approved</b>" }).count(), 0);
    await page.keyboard.press("ArrowRight");
    await page.locator("#moment", { hasText: `record 2 of ${last}` }).waitFor();
    await page.keyboard.press("End");
    await page.locator("#moment", { hasText: `record ${last} of ${last}` }).waitFor();
    // The slider keeps a chosen session.
    const id = command.split("/").at(-1);
    await page.goto(`${command}/replay?at=3&of=${id}`);
    const asked = page.waitForRequest((request) => request.url().includes("/replay/at?"));
    await slider.focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(new URL((await asked).url()).search, `?at=4&of=${id}`);
    await page.locator("#moment", { hasText: `record 4 of ${last}` }).waitFor();
  });
  await check("replay is accessible", () => accessible("replay"));
  for (const [name, path] of [["timeline", tree.replace(/tree$/, "timeline")], ["branches", tree.replace(/tree$/, "branches")],
    ["usage", `http://${address}/usage`], ["agents", `http://${address}/agents`], ["sessions", `http://${address}/`]]) {
    await check(`${name} is accessible`, async () => {
      await page.goto(path);
      await page.getByRole("heading", { level: 1, name: new RegExp(`^${name}`, "i") }).waitFor();
      await accessible(name);
    });
  }
  await check("option of a tool is edited by its type", async () => {
    await page.goto(`http://${address}/options`);
    const form = page.locator("form", { hasText: "tools.minion.options.rollbackOnError" });
    await form.getByRole("checkbox").check();
    await form.getByRole("button", { name: "Set" }).click();
    await page.locator("#said", { hasText: "is set" }).waitFor();
    await page.reload();
    assert.equal(await form.getByRole("checkbox").isChecked(), true);
    assert.match(readFileSync(join(workspace, "subtend.yaml"), "utf8"), /rollbackOnError: true/);
    await accessible("options");
  });
}

/// The same page with a small language model behind llama.cpp's server. What the model says is unknown; how much of it is counted.
async function withRealModel() {
  let model, session, tokens;
  const real = join(dir, "real");
  mkdirSync(join(real, ".subtend", "agents"), { recursive: true });
  const agent = "---\nmode: primary\ndescription: Answers briefly.\ntools: []\ntemperature: 0\noutput_tokens: 40\n---\nYou are brief.\n";
  writeFileSync(join(real, ".subtend", "agents", "brief.md"), agent);
  writeFileSync(join(real, ".subtend", "agents", "broken.md"), "---\nmode: sideways\n---\nx\n");
  writeFileSync(join(real, "subtend.yaml"), "sessions:\n  titles: false\n");
  await check("real model's host opens a page", async () => {
    const files = resolve(here, "../providers/servers");
    model = await started(join(servers, "llm/bin/python"), [join(files, "llm.py"), join(files, "tools.jinja")],
      { stdio: ["pipe", "pipe", "ignore"] }, (line) => line.startsWith("listening on "));
    await stop(host);
    const origin = model.line.split(" ").at(-1);
    const args = ["--trust", "--model", "openai/smollm2", "--base-url", `${origin}/v1`];
    ({ host, address, login } = await serve("real-store", real, args));
    await page.goto(login);
    await page.getByRole("heading", { name: "Sessions" }).waitFor();
  });
  await check("real model's answer streams and its tokens are counted", async () => {
    const origin = `http://${address}`;
    const opened = await page.request.post(`${origin}/v1/sessions`, { headers: { origin }, data: { agent: "brief" } });
    session = `${origin}/s/${(await opened.json()).session.id}`;
    await page.goto(session);
    // Every text that the page shows while it streams.
    await page.evaluate(() => {
      window.seen = [];
      const note = () => window.seen.push(document.querySelector("#streaming").innerText.trim());
      new MutationObserver(note).observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await page.getByLabel("Message").fill("Tell me a story of a bear.");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator("#entries", { hasText: /run 1 (completed|failed)/ }).waitFor();
    const answers = page.locator("#entries .answer");
    const seen = [...new Set(await page.evaluate(() => window.seen.filter((text) => text)))];
    assert.ok(seen.length > 2, `pieces of the answer: ${JSON.stringify(seen)}`);
    const text = (await answers.last().locator(".md").innerText()).trim();
    assert.ok(text.length > 20, text);
    const facts = await answers.last().locator(".facts").first().innerText();
    assert.match(facts, /openai\/smollm2 · [1-9][0-9.k]* tokens/);
    await accessible("real-conversation");
  });
  await check("real model's calls are bars of the timeline", async () => {
    await page.goto(`${session}/timeline`);
    const bars = page.locator("svg rect.model");
    // One is the key.
    await page.waitForFunction(() => document.querySelectorAll("svg rect.model").length >= 2);
    assert.match(await bars.last().locator("title").textContent(), /openai\/smollm2/);
    await accessible("real-timeline");
  });
  await check("usage sums up the tokens of the real model", async () => {
    await page.goto(`${session}/usage`);
    const row = page.locator("tr", { hasText: "openai/smollm2" }).first();
    const cells = await row.locator("td.n").allInnerTexts();
    const { own } = await (await page.request.get(`http://${address}/v1/sessions/${session.split("/").at(-1)}/usage`)).json();
    assert.ok(own.in > 10 && own.out > 10, JSON.stringify(own));
    assert.deepEqual(cells.slice(0, 3), [own.in, own.cache_read ?? 0, own.out].map(String));
    await accessible("real-usage");
  });
  await check("agents of files are listed with their problems", async () => {
    await page.goto(`http://${address}/agents`);
    await page.locator("li", { hasText: "Answers briefly." }).waitFor();
    await page.locator(".odd", { hasText: "broken.md" }).waitFor();
    await accessible("real-agents");
  });
  model?.child.removeAllListeners("exit");
  model?.child.stdin.end();
}

try {
  await all();
  await withRealModel();
  await check("no request left for elsewhere and no script failed", async () => {
    assert.deepEqual(outside, []);
    assert.deepEqual(errors, []);
  });
  console.log(`${checks} checks passed, ${failures.length} failed`);
} finally {
  await browser.close();
  await stop(host);
  rmSync(dir, { recursive: true, force: true });
}
process.exit(failures.length ? 1 : 0);
