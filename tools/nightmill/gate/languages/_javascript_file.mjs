// Runs inside the sandbox: the tests of one file with node:test, in a process of their own that tested code shares.
//
//     node --test-reporter=THIS --test-reporter-destination=stdout THIS FILE      key on stdin, lines to fd 3
//
// A line is `HMAC JSON`, the HMAC running over the one before: no line can be added, changed or dropped without the key, which is read
// before tested code is imported and lies in no object that it can reach. node:test loads this file a second time by name and so gets the
// same module: its default export is the reporter, usable once, and used up before the tests are imported.
//
// Not guaranteed: the tested code shares this process. Code that replaces the built-in streams or promises, or searches memory through
// /proc, can lie. It cannot do so by accident, nor by printing or leaving early. `assert` and `node:test` are frozen before it comes.

import assert from "node:assert";
import { createHmac, createSecretKey } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";
import test, { beforeEach } from "node:test";
import { pathToFileURL } from "node:url";

const LIMIT = 4000;
const FD = 3;
const json = JSON.stringify;
const soon = setImmediate;
const { update, digest } = Object.getPrototypeOf(createHmac("sha256", "")).constructor.prototype;
const call = Function.prototype.call.bind(Function.prototype.call);
const secret = createSecretKey(readFileSync(0));
let tag = "";
let used = false;
let claimed;
const reporting = new Promise((resolve) => (claimed = resolve));

function tell(fact) {
  const text = json(fact);
  const hmac = createHmac("sha256", secret);
  call(update, hmac, tag + text);
  tag = call(digest, hmac, "hex");
  let line = Buffer.from(`${tag} ${text}\n`);
  while (line.length) line = line.subarray(writeSync(FD, line));
}

function text(value) {
  try {
    return typeof value === "string" ? value.slice(0, LIMIT) : value === undefined ? "" : String(value).slice(0, LIMIT);
  } catch {
    return "";
  }
}

/** What was thrown, as text: it may be anything, with getters that throw in turn. */
function told(error) {
  try {
    if (typeof error !== "object" || error === null) return { exception: typeof error, message: text(error) };
    const exception = text(error.name) || text(error.constructor?.name);
    return { exception, code: text(error.code), message: text(error.message), stack: text(error.stack) };
  } catch {
    return { exception: "unreadable" };
  }
}

async function* report(source) {
  for await (const { type, data } of source) {
    if (!["test:enqueue", "test:dequeue", "test:pass", "test:fail"].includes(type)) continue;
    const fact = { event: type.slice(5), name: text(data.name), nesting: data.nesting };
    if (type === "test:pass" || type === "test:fail") {
      fact.suite = data.details?.type === "suite";
      fact.skip = data.skip !== undefined && data.skip !== false;
      fact.todo = data.todo !== undefined && data.todo !== false;
      fact.expected = Boolean(data.expectFailure);
      const error = data.details?.error;
      if (error) Object.assign(fact, { failure: text(error.failureType), ...told(error.cause ?? error) });
    }
    tell(fact);
  }
  tell({ event: "end" });
}

export default (source) => {
  if (used) throw new Error("one report has been made");
  used = true;
  claimed();
  return report(source);
};

/** Lets what was reported so far reach the report before the next test runs: it may never come back. */
beforeEach(() => new Promise((resolve) => soon(resolve)));
for (const builtin of [assert, assert.strict, test]) Object.freeze(builtin);

/** Not awaited at the top of the module, which node:test would then wait for before it gets the reporter. */
async function run(file) {
  await reporting;
  try {
    await import(pathToFileURL(file));
    tell({ event: "imported" });
  } catch (error) {
    tell({ event: "unimportable", ...told(error) });
    process.exit(1);
  }
}
run(process.argv[2]);
