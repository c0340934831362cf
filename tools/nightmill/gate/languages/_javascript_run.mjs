// Runs inside the sandbox: the locked tests, file by file, each in a process of its own, and a report that only this file can write.
//
//     node run.mjs KEY REPORT FILES SECONDS EACH
//
// KEY      file with the key of this run, removed before any tested code is started
// REPORT   file to create; a line is `HMAC JSON`, the HMAC running over all JSON texts so far, as in the Python runner's report
// FILES    JSON list of the test files, relative to the working directory, which is the root of the tested tree
// SECONDS  without any news after which a file's process is killed: the test that runs then has failed, those behind it did not run
// EACH     the script that runs one file, see _javascript_file.mjs

import { spawn, spawnSync } from "node:child_process";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { constants, openSync, readFileSync, realpathSync, unlinkSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const IDLE_MS = 1000; // all tests have ended and the process lives on: something was left open, which proves nothing
const [keyFile, reportFile, listing, seconds, each] = process.argv.slice(2);
const key = readFileSync(keyFile);
const files = JSON.parse(readFileSync(listing, "utf8"));
unlinkSync(keyFile);
const { O_WRONLY, O_CREAT, O_EXCL, O_APPEND, O_NOFOLLOW } = constants;
const report = openSync(reportFile, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW, 0o600);
const root = `${realpathSync(process.cwd())}/`;

const pad = (byte) => Buffer.concat([key, Buffer.alloc(64 - key.length)]).map((b) => b ^ byte);
const inner = createHash("sha256").update(pad(0x36));

function write(event, facts) {
  const text = JSON.stringify({ event, ...facts });
  inner.update(`${text}\n`);
  const mac = createHash("sha256").update(pad(0x5c)).update(inner.copy().digest()).digest("hex");
  let line = Buffer.from(`${mac} ${text}\n`);
  while (line.length) line = line.subarray(writeSync(report, line));
}

const clean = (name) => name.split(/\s+/).filter(Boolean).join(" ").replaceAll("::", ":").replaceAll("[", "(").replaceAll("]", ")");

/** Cases of one test have names with brackets at their end, which stay. */
function clear(name) {
  const cases = /^(.*\S)(\[[^[\]]*\])$/.exec(name.trim());
  return cases ? clean(cases[1]) + cases[2].replaceAll("::", ":") : clean(name);
}

/** File, line and column of the innermost frame inside the tree; nothing when there is none. */
function place(stack) {
  const frames = (stack ?? "").split("\n").reverse();
  const end = frames.findIndex((line) => line.trim() && !/^\s+at /.test(line));
  for (const line of (end < 0 ? frames : frames.slice(0, end)).reverse()) {
    const found = /\(?((?:file:\/\/)?\/[^()]*):(\d+):(\d+)\)?$/.exec(line);
    const file = found && (found[1].startsWith("file:") ? fileURLToPath(found[1]) : found[1]);
    if (file && file.startsWith(root)) return { file: file.slice(root.length), line: Number(found[2]) };
  }
  return {};
}

function failure(fact) {
  const cancelled = fact.failure === "cancelledByParent" && fact.exception === "string";
  const exception = cancelled ? "Cancelled" : fact.exception ?? "";
  return { exception, message: fact.message ?? "", traceback: fact.stack ?? "", ...place(fact.stack) };
}

/** The results of one file: tests by their path of suites; a test's subtests are part of it. */
class File {
  constructor(path) {
    this.path = path;
    this.levels = [[]];
    this.running = [];
    this.open = 0;
    this.imported = this.ended = false;
    this.failed = false;
  }

  take(fact) {
    const { event, nesting } = fact;
    if (event === "imported") this.imported = true;
    if (event === "end") this.ended = true;
    if (event === "unimportable") {
      this.ended = true;
      const facts = failure(fact);
      this.broken(facts.exception === "SyntaxError" && !facts.file ? { ...facts, ...syntax(this.path) } : facts);
    }
    if (event === "enqueue" && nesting === 0) this.open += 1;
    if (event === "dequeue") {
      this.running = [...this.running.slice(0, nesting), fact.name];
      write("start", { id: this.now });
    }
    if (event === "pass" || event === "fail") this.result(fact);
  }

  get now() {
    return [this.path, ...this.running.map(clear)].join("::");
  }

  broken(facts) {
    this.failed = true;
    write("broken", { id: this.path, outcome: "error", ...facts });
  }

  result(fact) {
    const children = this.levels[fact.nesting + 1] ?? [];
    this.levels.length = fact.nesting + 1;
    const own = { names: [clear(fact.name)], ...failure(fact), outcome: outcome(fact) };
    let made = [own];
    if (fact.suite) {
      made = children.map((child) => ({ ...child, names: [...own.names, ...child.names] }));
      if (own.outcome !== "passed" && fact.failure !== "subtestsFailed") made.push({ ...own, suite: true });
    } else {
      const bad = children.filter((child) => child.outcome !== "passed");
      const worst = bad.find((child) => child.outcome === "failed" || child.outcome === "error") ?? bad[0];
      if (worst) Object.assign(own, worst, { names: own.names });
    }
    (this.levels[fact.nesting] ??= []).push(...made);
    this.running = this.running.slice(0, fact.nesting);
    if (fact.nesting === 0) {
      this.open -= 1;
      this.flush();
    }
  }

  flush() {
    for (const { names, suite, ...facts } of this.levels[0] ?? []) {
      const id = [this.path, ...names].join("::");
      this.failed ||= facts.outcome !== "passed";
      if (suite) write("broken", { ...facts, id });
      else settle(id, facts);
    }
    this.levels = [[]];
  }

  /** The process is gone before its tests were. */
  cut(facts) {
    for (let level = this.levels.length - 1; level > 0; level -= 1) {
      const above = clear(this.running[level - 1] ?? "");
      this.levels[level - 1].push(...(this.levels[level] ?? []).map((child) => ({ ...child, names: [above, ...child.names] })));
    }
    const { now, running } = this;
    this.flush();
    if (running.length) settle(now, facts);
    const behind = { exception: "Ended", message: `${this.open - 1} more tests did not run, since ${now} did not end` };
    if (!running.length) this.broken({ ...facts, outcome: "error" });
    else if (this.open > 1 || running.length > 1) this.broken(behind);
    this.failed = true;
  }
}

function outcome(fact) {
  if (fact.skip) return "skipped";
  if (fact.todo || fact.expected) return fact.event === "fail" || fact.expected ? "xfailed" : "xpassed";
  if (fact.event === "pass") return "passed";
  return fact.failure === "hookFailed" || fact.failure === "cancelledByParent" ? "error" : "failed";
}

const collected = new Map();

function settle(id, facts) {
  const times = (collected.get(id) ?? 0) + 1;
  collected.set(id, times);
  const own = times > 1 ? `${id}[again ${times}]` : id;
  if (times > 1) collected.set(own, 1);
  write("result", { ...facts, id: own });
}

/** One file's process from start to end. Resolves when it is gone. */
function run(path) {
  const file = new File(path);
  const secret = randomBytes(32);
  const options = [...process.execArgv, `--test-reporter=${each}`, "--test-reporter-destination=stdout", each, path];
  const child = spawn(process.execPath, options, { stdio: ["pipe", "inherit", "inherit", "pipe"] });
  child.stdin.on("error", () => {});
  child.stdin.end(secret);
  write("start", { id: path });
  let tag = "";
  let late = "";
  let timer;
  const wait = (milliseconds, why) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      late = why;
      child.kill("SIGKILL");
    }, milliseconds);
  };
  wait(seconds * 1000, "TimedOut");
  createInterface({ input: child.stdio[3], crlfDelay: Infinity }).on("line", (line) => {
    const [said, text] = [line.slice(0, 64), line.slice(65)];
    tag = createHmac("sha256", secret).update(tag + text).digest("hex");
    if (said !== tag) {
      late = "Forged";
      child.kill("SIGKILL");
      return;
    }
    if (late) return;
    file.take(JSON.parse(text));
    wait(file.imported && file.open === 0 ? IDLE_MS : seconds * 1000, file.imported && file.open === 0 ? "idle" : "TimedOut");
  });
  return new Promise((resolve) => child.on("close", (code, signal) => {
    clearTimeout(timer);
    finish(file, code, signal, late);
    resolve(file.failed);
  }));
}

function finish(file, code, signal, late) {
  const failed = file.failed;
  if (late === "TimedOut") file.cut({ outcome: "failed", exception: "TimedOut", message: `still running after ${seconds} s` });
  else if (late === "Forged") file.broken({ exception: "Forged", message: "the file's report was tampered with" });
  else if (!late && !file.ended) file.cut({ outcome: "error", exception: "Ended", message: early(code, signal) });
  else if (file.ended && code !== 0 && !failed) {
    file.broken({ exception: "Ended", message: `every test passed, yet the process ended with exit ${code}` });
  }
}

function early(code, signal) {
  return signal ? `the process was ended by ${signal}` : `the process ended with exit ${code} before its tests did`;
}

/** Where a file does not parse, which the loader's error does not say. */
function syntax(path) {
  const said = spawnSync(process.execPath, ["--check", path], { encoding: "utf8" }).stderr.slice(0, 600);
  const line = /^[^\n]*:(\d+)\n/.exec(said)?.[1];
  return line ? { file: path, line: Number(line), traceback: said } : {};
}

write("started", { node: process.version });
let bad = false;
for (const path of files) bad = (await run(path)) || bad;
write("collected", { ids: [...collected.keys()] });
const exit = bad ? 1 : collected.size ? 0 : 5;
write("finished", { exit });
process.exit(exit);
