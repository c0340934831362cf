"""What models are told about Rust: rules, and the examples that formats and personas show in its place of Python's."""

from __future__ import annotations

_MODULES = (
    "Write Rust of edition 2021 with the standard library only; no crate can be had, and Cargo.toml is written by program.",
    "All that is public lies in the library: src/lib.rs declares each file with `pub mod name;`, and src/main.rs, if any, only calls it.",
    "Within the library import with `crate::`: `use crate::tariff::fee;` for src/tariff.rs. No `unsafe`, no build.rs, no `static mut`.",
)
SCHEMA_RULES = (
    *_MODULES,
    "Types derive what tests need, `#[derive(Debug, Clone, PartialEq)]`. What can go wrong gives a `Result` with a type that is Debug.",
    "Return a named type, `Vec` or `Box<dyn …>`, never `impl Trait`, so that a stub has a type. A trait's methods may stay without a body.",
    "A constructor that only keeps its arguments, `Self { title }`, is complete; whatever computes is a stub.",
)
TEST_RULES = (
    "Write plain `#[test] fn test_t1_words() { … }` with assert!, assert_eq! and assert_ne!, in files ending .rs; no `#[ignore]`.",
    "Import inside of each test, under the package's name in Cargo.toml: `use parking::tariff::fee;` for src/tariff.rs of parking.",
    'For an error compare the Result: `assert_eq!(fee(-5), Err("negative time: -5".to_string()));`.',
    'For a panic give its text: `#[should_panic(expected = "negative time: -5")]`, never the bare attribute.',
    "A test returns nothing, prints nothing and ends by itself: no threads, no files, no `std::process`.",
)
PROMPT_RULES = (
    "Write Rust that compiles as it stands, of edition 2021 or older; no placeholders, no `todo!()` where work is due.",
    *_MODULES,
    "Keep names, parameters, types and derives exactly as the schema declares them.",
    "Use every Result: no `let _ =` on an error, no `unwrap` of what a caller can get wrong. Unused results and dead code are errors.",
)

_SCHEMA = """\
Write each file completely: its path alone on a line, then its whole content in a fenced block. Types and constants are complete.
Every function and method has its signature, a doc comment above it, and as its only statement `todo!()`.

src/lib.rs
```rust
pub mod tariff;
```

src/tariff.rs
```rust
/// Cents for a stay; an error when minutes is negative.
pub fn fee(minutes: i64) -> Result<i64, String> {
    todo!()
}
```
"""
_TESTS = """\
Write each test file completely: its path, which is acceptance/test_ and a name with .rs, alone on a line, then its whole content in a
fenced block. One test per row of the matrix; its name starts with test_t and the row's number.

acceptance/test_tariff.rs
```rust
#[test]
fn test_t1_first_minute_costs_a_half_hour() {
    use parking::tariff::fee;
    assert_eq!(fee(1), Ok(150));
}

#[test]
fn test_t3_negative_time_is_an_error() {
    use parking::tariff::fee;
    assert_eq!(fee(-5), Err("negative time: -5".to_string()));
}
```
"""
_FILE = """\
src/price.rs
```rust
pub fn net(cents: i64) -> i64 {
    cents
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

src/price.rs
```
<<<<<<< SEARCH
    cents
=======
    cents - DISCOUNT
>>>>>>> REPLACE
```

Several files and blocks may follow each other. Leave nothing out inside a block: no "..." and no "rest unchanged".
"""
)
_FUNCTION = """\
The whole function in one fenced block, from its first line to its last brace, and nothing else. Example:

```rust
pub fn fee(minutes: i64) -> i64 {
    (minutes + 29) / 30 * 150
}
```
"""
_RESULT = """\
One line: the value as `{:?}` shows it, or `raises panic` and its text in quotes. Nothing else. Examples:

150
["a", "b"]
Err("negative time: -5")
raises panic "negative time: -5"
"""
_MODEL = """\
src/lib.rs
```rust
pub mod fines;
pub mod model;
```

src/model.rs
```rust
pub const DAILY_CENTS: i64 = 25;

/// A book that is lent. `due` is the last day without a fine, counted from any day.
#[derive(Debug, Clone, PartialEq)]
pub struct Loan {
    pub title: String,
    pub due: i64,
}

impl Loan {
    /// Whole days after `due`, 0 when not late (C1).
    pub fn days_late(&self, today: i64) -> i64 {
        todo!()
    }
}
```

src/fines.rs
```rust
use crate::model::Loan;

/// The loans by due date, equal dates in the order given (C2, C3).
pub fn by_due(loans: &[Loan]) -> Vec<Loan> {
    todo!()
}
```
"""
_FINES = """\
src/fines.rs
```rust
use crate::model::{Loan, DAILY_CENTS};

const MOST_CENTS: i64 = 1000;

/// Cents for a number of late days, at most 1000 (C1).
pub fn fine(days: i64) -> i64 {
    (days.max(0) * DAILY_CENTS).min(MOST_CENTS)
}

/// The loans by due date, equal dates in the order given (C2, C3).
pub fn by_due(loans: &[Loan]) -> Vec<Loan> {
    let mut sorted = loans.to_vec();
    sorted.sort_by_key(|loan| loan.due);
    sorted
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
    "raise NotImplementedError": "todo!()",
    "ValueError": "panic",
    ".py": ".rs",
}
"""In every other format and persona."""
