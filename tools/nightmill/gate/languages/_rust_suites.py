"""The tests that a Rust file declares, as text: their ids, what they ask, the file without some of them, and the file made to be judged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nightmill.gate.authority import Asked, Census
from nightmill.gate.languages._rust_items import Item, items
from nightmill.gate.languages._rust_tokens import Code, code

GUARD = "nightmill_guard"
ALIAS = "program"
"""The name by which every test can reach the crate, whatever Cargo.toml calls it."""
_CHECKS = frozenset({"assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne", "panic", "unreachable"})
_JUDGES = frozenset({"unwrap_err", "expect_err"})

_MODULE = f"""
#[allow(warnings, clippy::all)]
mod {GUARD} {{
    use ::std::io::{{Read, Write}};
    pub struct Test {{ place: String, end: String }}
    pub fn begin(panics: bool, text: &str) -> Test {{
        let mut asked = String::new();
        let _ = ::std::io::stdin().read_to_string(&mut asked);
        let words: Vec<String> = asked.split_whitespace().map(String::from).collect();
        let word = |n: usize| words.get(n).cloned().unwrap_or_default();
        let (place, told, me, before) = (word(0), word(1), ::std::thread::current().id(), ::std::panic::take_hook());
        let to = place.clone();
        ::std::panic::set_hook(Box::new(move |info| {{
            let text = info.payload().downcast_ref::<&str>().map(|t| t.to_string())
                .or_else(|| info.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
            let (line, column, file) = info.location().map(|p| (p.line(), p.column(), p.file().to_string())).unwrap_or_default();
            let own = u8::from(::std::thread::current().id() == me);
            say(&to, &format!("{{}} panic {{}} {{}} {{}} .{{}} .{{}}\\n", told, own, line, column, hex(&file), hex(&text)));
            before(info);
        }}));
        Test {{ place, end: format!("{{}} {{}} .{{}}", word(2), u8::from(panics), hex(text)) }}
    }}
    impl Drop for Test {{
        fn drop(&mut self) {{
            say(&self.place, &format!("{{}} {{}}\\n", self.end, u8::from(::std::thread::panicking())));
        }}
    }}
    fn say(place: &str, line: &str) {{
        if let Ok(mut file) = ::std::fs::OpenOptions::new().write(true).open(place) {{ let _ = file.write_all(line.as_bytes()); }}
    }}
    fn hex(text: &str) -> String {{
        text.bytes().take(8000).map(|b| format!("{{:02x}}", b)).collect()
    }}
}}
"""
"""Tells, over a pipe and with words that only the runner and it know, how a test panicked and that it came to its end. `process::exit` does
not; nor can what the tested code prints."""


def tests(path: str, text: str) -> tuple[str, ...]:
    """`path::test_t1_name`, `path::group::test_t1_name`. Tests that a macro makes are not known here."""
    found = code(text)
    return tuple(f"{path}::{_id(item)}" for item in declared(found)) if found else ()


def declared(found: Code) -> Iterator[Item]:
    for item in items(found):
        if item.is_function and _marked(found, item, "test"):
            yield item


def _id(item: Item) -> str:
    return item.name.replace(".", "::")


def attributes(found: Code, item: Item) -> Iterator[tuple[str, ...]]:
    index = item.first
    while index < item.head and found.at(index, "#", "["):
        yield found.words(index + 2, found.partner[index + 1])
        index = found.over(index + 1)


def _marked(found: Code, item: Item, word: str) -> bool:
    return any(words[:1] == (word,) and (word != "test" or len(words) == 1) for words in attributes(found, item))


def without(text: str, names: set[str]) -> str:
    """The file without the tests in `names`; unchanged where it cannot be read."""
    found = code(text)
    if found is None:
        return text
    for item in reversed([i for i in declared(found) if _id(i) in names]):
        start, end = found.tokens[item.first].start, found.tokens[item.after - 1].end
        before = text[:start]
        remark = re.search(r"(?:^[ \t]*//[^\n]*\n)*[ \t]*\Z", before, re.M)
        text = (before[: remark.start()] if remark else before) + text[end:]
    return re.sub(r"\n{3,}", "\n\n", text)


def census(path: str, text: str) -> Census:
    """What each test asks: its assertions, and what keeps it from running. The file's own path stands for the rest of the file."""
    found = code(text)
    if found is None:
        return {path: Asked()}
    made: Census = {}
    inside: set[int] = set()
    for item in declared(found):
        here = range(item.first, item.after)
        inside |= set(here)
        made[f"{path}::{_id(item)}"] = _asked(found, here)
    return {path: _asked(found, [i for i in range(len(found.tokens)) if i not in inside]), **made}


def _asked(found: Code, indices: Iterable[int]) -> Asked:
    checks = skips = 0
    for i in indices:
        text = found.tokens[i].text
        macro = text in _CHECKS and found.at(i + 1, "!") and i + 2 in found.partner and not _constant(found, i + 2)
        judged = text in _JUDGES and found.at(i - 1, ".") and found.at(i + 1, "(")
        panics = text == "should_panic" and (found.at(i - 1, "[") or found.at(i - 1, ","))
        checks += macro or judged or panics
        skips += (
            text in ("ignore", "cfg_attr", "cfg") and found.at(i - 1, "[") and found.at(i - 2, "#") and not found.at(i, "cfg", "(", "test")
        )
    return Asked(checks, skips)


def _constant(found: Code, opens: int) -> bool:
    """Whether a macro is given nothing but literals: `assert!(true)`, `assert_eq!(1, 1)`. A bare `panic!()` is none."""
    inner = found.tokens[opens + 1 : found.partner[opens]]
    plain = bool(inner) and all(t.kind in ("number", "string", "char") or t.text in ("true", "false", ",") for t in inner)
    return plain and not found.at(opens - 2, "panic") and not found.at(opens - 2, "unreachable")


def judged(text: str, crate: str) -> str:
    """The file as it is compiled here: every test first makes itself known. No line moves. Unchanged where it cannot be read."""
    found = code(text)
    if found is None:
        return text
    for opens, panics, said in reversed(list(_bodies(found))):
        inner = opens + 1  # inner attributes keep their place
        while found.at(inner, "#", "!", "["):
            inner = found.over(inner + 2)
        at = found.tokens[inner - 1].end
        text = f"{text[:at]} let _{GUARD} = crate::{GUARD}::begin({'true' if panics else 'false'}, {said});{text[at:]}"
    alias = f"#[allow(unused_extern_crates)] extern crate {crate} as {ALIAS};\n" if crate != ALIAS else ""
    return f"{text}\n{alias}{_MODULE}"


def _bodies(found: Code) -> Iterator[tuple[int, bool, str]]:
    """The brace that opens each test's body, tests in macros included; whether it must panic; a literal of what it must say then."""
    index = 0
    while index < len(found.tokens):
        marks: list[tuple[str, ...]] = []
        while found.at(index, "#", "["):
            marks.append(found.words(index + 2, found.partner[index + 1]))
            index = found.over(index + 1)
        if ("test",) in marks:
            opens = _opens(found, index)
            if opens:
                panics = [words for words in marks if words[:1] == ("should_panic",)]
                yield opens, bool(panics), next((w for words in panics for w in words if '"' in w), '""')
        index += 1


def _opens(found: Code, index: int) -> int:
    while index < len(found.tokens) and not found.at(index, "fn"):
        if found.tokens[index].text in (";", "{", "}"):
            return 0
        index = found.over(index)
    while index < len(found.tokens) and found.tokens[index].text not in ("{", ";", "}"):
        index = found.over(index)
    return index if index < len(found.tokens) and found.at(index, "{") else 0
