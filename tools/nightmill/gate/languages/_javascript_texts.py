"""What models are told about JavaScript: rules, and the examples that formats and personas show in its place of Python's."""

from __future__ import annotations

_MODULES = (
    "Write ES modules for Node 18 and newer: `import` and named `export`, never `require`, `module.exports` or a default export.",
    'Import with relative paths and the ending: `import { Ledger } from "./ledger.js"`, and Node\'s own modules (`node:fs`), no packages.',
    "Importing a module must do nothing: no prints, files, timers or process.exit; a script starts in a file that no other imports.",
)
SCHEMA_RULES = (
    *_MODULES,
    "Types stand in JSDoc comments: `@param {number} minutes`, `@returns`, `@throws`. package.json is written by program.",
    "A constructor may keep its arguments (`this.title = title;`); whatever computes is a stub.",
)
TEST_RULES = (
    'Write plain `test("test_t1_words", () => { … })` of node:test with node:assert/strict, in files ending .mjs.',
    "A test's name is one plain string. No describe, no hooks, no template with values in it, no `.only`, `.skip` or `.todo`.",
    'Import from the folder above: `import { Ledger } from "../ledger.js"` for ledger.js. Import nothing but Node\'s own modules besides.',
    'For an error give its class and text: `assert.throws(() => fee(-5), { name: "RangeError", message: "negative time: -5" })`.',
    "Where a function of the schema is async, the test is async and awaits it: `await assert.rejects(…)`.",
)
PROMPT_RULES = (
    "Write JavaScript that runs on Node 18 and newer as it stands; no placeholders, no TypeScript.",
    *_MODULES,
    "Keep names, parameters and their order exactly as the schema declares them, and the `export` before them.",
    "Throw the error classes the contract names; never catch an error to hide it.",
)

_SCHEMA = """\
Write each file completely: its path alone on a line, then its whole content in a fenced block. Types and constants are complete.
Every function and method has its signature, a JSDoc comment above it, and as its only statement `throw new Error("not implemented");`.

parking/tariff.js
```js
/**
 * Cents for a stay.
 * @param {number} minutes
 * @returns {number}
 * @throws {RangeError} when minutes is negative
 */
export function fee(minutes) {
  throw new Error("not implemented");
}
```
"""
_TESTS = """\
Write each test file completely: its path, which is acceptance/test_ and a name with .mjs, alone on a line, then its whole content in a
fenced block. One test per row of the matrix; its name starts with test_t and the row's number.

acceptance/test_tariff.mjs
```js
import { test } from "node:test";
import assert from "node:assert/strict";

import { fee } from "../parking/tariff.js";

test("test_t1_first_minute_costs_a_half_hour", () => {
  assert.equal(fee(1), 150);
});

test("test_t3_negative_time_is_an_error", () => {
  assert.throws(() => fee(-5), { name: "RangeError", message: "negative time: -5" });
});
```
"""
_FILE = """\
shop/price.js
```js
export function net(cents) {
  return cents;
}
```
"""
_FILES = (
    """\
Write each file completely: its path alone on a line, then its whole content in a fenced block. Leave nothing out: no "..." for parts
that did not change.

"""
    + _FILE
)
_EDITS = (
    """\
To write a whole file: its path alone on a line, then the complete content in a fenced block.

"""
    + _FILE
    + """
To change a part of an existing file: its path, then a block whose upper half repeats whole lines of the file exactly as they are.

shop/price.js
```
<<<<<<< SEARCH
  return cents;
=======
  return cents - discount;
>>>>>>> REPLACE
```

Several files and blocks may follow each other. Leave nothing out inside a block: no "..." and no "rest unchanged".
"""
)
_FUNCTION = """\
The whole function in one fenced block, from its first line to its last brace, and nothing else. Example:

```js
export function fee(minutes) {
  return Math.ceil(minutes / 30) * 150;
}
```
"""
_RESULT = """\
One line: the value as a literal, or `raises`, the error's class and its text in quotes. Nothing else. Examples:

150
["a", "b"]
raises RangeError "negative time: -5"
"""
_MODEL = """\
loans/model.js
```js
export const DAILY_CENTS = 25;

/** A book that is lent. `due` is the last day without a fine, as `YYYY-MM-DD`. */
export class Loan {
  constructor(title, due) {
    this.title = title;
    this.due = due;
  }

  /** Whole days after `due`, 0 when not late (C1). @param {string} today @returns {number} */
  daysLate(today) {
    throw new Error("not implemented");
  }
}
```

loans/fines.js
```js
/** The loans by due date, equal dates in the order given (C2, C3). @param {Loan[]} loans @returns {Loan[]} */
export function byDue(loans) {
  throw new Error("not implemented");
}
```
"""
_FINES = """\
loans/fines.js
```js
import { DAILY_CENTS } from "./model.js";

const MOST_CENTS = 1000;

/** Cents for a number of late days, at most 1000 (C1). */
export function fine(days) {
  return Math.min(Math.max(days, 0) * DAILY_CENTS, MOST_CENTS);
}

/** The loans by due date, equal dates in the order given (C2, C3). */
export function byDue(loans) {
  return [...loans].sort((a, b) => (a.due < b.due ? -1 : a.due > b.due ? 1 : 0));
}
```
"""
EXAMPLES = {
    "Schema": _SCHEMA,
    "AcceptanceTests": _TESTS,
    "WholeFiles": _FILES,
    "MergedFile": _FILES,
    "Edits": _EDITS,
    "OneFunction": _FUNCTION,
    "Result": _RESULT,
    "schema_architect": _MODEL,
    "target_implementer": _FINES,
    "merge_agent": _FINES,
}
"""By the name of the reply class whose format it is, or of the persona whose example it is."""
WORDS = {
    "raise NotImplementedError": 'throw new Error("not implemented");',
    "ValueError": "RangeError",
    ".py": ".js",
}
"""In every other format and persona."""
