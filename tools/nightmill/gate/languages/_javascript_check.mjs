// Parses JavaScript files without running any of them, and says where they do not parse.
//
//     node --experimental-vm-modules --no-warnings check.mjs < [[path, text, "module" | "script"], …]
//     node --experimental-vm-modules --no-warnings check.mjs LIST            LIST: JSON list of [path, kind]
//
// One JSON line per complaint `{file, line, column, message, code}`, then `{"checked": N}`.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import vm from "node:vm";

const listing = process.argv[2];
const files = listing
  ? JSON.parse(readFileSync(listing, "utf8")).map(([path, kind]) => [path, readFileSync(path, "utf8"), kind])
  : JSON.parse(readFileSync(0, "utf8"));

function parse(text, kind) {
  if (kind === "module") return new vm.SourceTextModule(text, { identifier: "checked" });
  return new vm.Script(`(function (exports, require, module, __filename, __dirname) {${text}\n})`, { filename: "checked" });
}

/** Line, column and message of what keeps a text from parsing; for a module another process must say where. */
function complaint(text, kind, error) {
  const check = ["--check", "--input-type=module", "-"];
  const told = kind === "module" ? spawnSync(process.execPath, check, { input: text, encoding: "utf8" }).stderr : String(error.stack);
  const place = /^[^\n]*:(\d+)\n[^\n]*\n([ \t]*)\^/m.exec(told);
  return { line: Number(place?.[1] ?? 1), column: place ? place[2].length + 1 : 0, message: error.message, code: error.name };
}

let failed = false;
for (const [path, whole, kind] of files) {
  const text = whole.replace(/^#!.*/, "");
  try {
    parse(text, kind);
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    failed = true;
    console.log(JSON.stringify({ file: path, ...complaint(text, kind, error) }));
  }
}
console.log(JSON.stringify({ checked: files.length }));
process.exitCode = failed ? 1 : 0;
