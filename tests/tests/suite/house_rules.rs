//! What a reviewer would repeat is a test, with a message that says what to do instead.

use std::collections::{BTreeMap, BTreeSet};

use tepui_tests::tree::{SourceFile, files};

const LINE_CHARS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;

/// The only modules that may contain `unsafe`; each states its invariants.
const UNSAFE_FILES: &[&str] = &[
    "cli/src/allocator.rs",
    "env/src/memory.rs",
    "lsm/src/memtable/arena.rs",
    "lsm/src/memtable/cursor.rs",
];

/// Too vague to name anything.
const VAGUE_WORDS: &[&str] = &["manager", "helper", "helpers", "util", "utils", "info", "misc"];

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn rust_files() -> Vec<SourceFile> {
    files(&[".rs"])
}

#[test]
fn lines_and_files_stay_short() {
    let mut problems = Vec::new();
    for file in rust_files() {
        for (number, line) in file.text.lines().enumerate() {
            if line.chars().count() > LINE_CHARS_MAX {
                problems.push(format!("{}:{}: longer than 100", file.path, number + 1));
            }
        }
        let lines = file.lines_without_tests();
        if !file.is_test() && lines > FILE_LINES_MAX {
            problems.push(format!("{}: {lines} lines: look for the seam", file.path));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_crate_and_module_folder_says_what_it_is() {
    let mut problems = Vec::new();
    for file in rust_files() {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let needs_docs = matches!(name, "lib.rs" | "main.rs" | "mod.rs");
        let documented =
            file.text.starts_with("//!") || file.text.starts_with("#![doc = include_str!");
        if needs_docs && !documented {
            problems.push(format!("{}: begin with //! and one sentence", file.path));
        }
    }
    assert_none(&problems);
}

#[test]
fn nothing_unfinished_or_unbounded_is_left_in_the_code() {
    // Written in two halves, so that this file does not break its own rule.
    let banned = [
        (["dbg", "!("], "remove it"),
        (["todo", "!("], "finish it or leave it out"),
        (["unimplemented", "!("], "answer with an error"),
        (["unbounded", "_channel"], "give the queue a limit"),
        (["#[ign", "ore"], "a test runs or does not exist; long ones have their own command"),
        (["FIX", "ME"], "mend it or say what holds"),
        (["#[all", "ow("], "use #[expect(.., reason = \"..\")]"),
    ];
    let mut problems = Vec::new();
    for file in rust_files() {
        for (halves, advice) in &banned {
            let word = halves.concat();
            if let Some(number) = file.text.lines().position(|line| line.contains(&word)) {
                problems.push(format!("{}:{}: {word}: {advice}", file.path, number + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn file_names_say_what_is_inside() {
    let mut problems = Vec::new();
    for file in rust_files() {
        let vague = |part: &str| VAGUE_WORDS.contains(&part.trim_end_matches(".rs"));
        if file.path.split(['/', '_']).any(vague) {
            problems.push(format!("{}: name it after what it does", file.path));
        }
    }
    assert_none(&problems);
}

#[test]
fn unsafe_code_stays_in_its_few_modules() {
    let mut problems = Vec::new();
    for file in rust_files() {
        let word = ["unsafe", " "].concat();
        let uses = file.text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains(&format!("{word}{{"))
                || code.contains(&format!("{word}impl"))
                || code.contains(&format!("{word}fn"))
        });
        if uses && !UNSAFE_FILES.contains(&file.path.as_str()) {
            problems.push(format!("{}: unsafe belongs in {UNSAFE_FILES:?}", file.path));
        }
    }
    assert_none(&problems);
}

#[test]
fn no_text_names_a_machine() {
    let mut problems = Vec::new();
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|halves| halves.concat());
    for file in files(&[".rs", ".md", ".toml", ".py", ".sh", "run"]) {
        for path in &paths {
            if let Some(number) = file.text.lines().position(|line| line.contains(path)) {
                problems.push(format!("{}:{}: names {path}", file.path, number + 1));
            }
        }
    }
    assert_none(&problems);
}

/// `crate -> crates it uses`, from the fenced block of ARCHITECTURE.md that begins with `arrows`.
fn allowed_arrows() -> BTreeMap<String, BTreeSet<String>> {
    let architecture = files(&["ARCHITECTURE.md"]);
    let text = &architecture.first().expect("ARCHITECTURE.md exists").text;
    let block = text.split("```arrows\n").nth(1).expect("it has a block of arrows");
    let block = block.split("```").next().unwrap_or_default();
    let mut arrows = BTreeMap::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, to) = line.split_once("->").expect("each line is: crate -> crates");
        let to = to.split_whitespace().map(str::to_owned).collect();
        arrows.insert(from.trim().to_owned(), to);
    }
    arrows
}

/// The workspace's own crates that a manifest's sections name, without `[dev-dependencies]`.
fn used_crates(manifest: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut counts = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            counts = line.contains("dependencies") && !line.contains("dev-dependencies");
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if counts && known.contains(name) {
            used.insert(name.to_owned());
        }
    }
    used
}

#[test]
fn arrows_between_crates_only_go_down_as_the_architecture_says() {
    let allowed = allowed_arrows();
    let known: BTreeSet<String> = allowed.keys().cloned().collect();
    let mut problems = Vec::new();
    let mut above = BTreeSet::new();
    for (from, to) in &allowed {
        if to.contains(from) {
            problems.push(format!("{from} uses itself"));
        }
    }
    // The block lists crates from the top down: what a crate uses must come later.
    let architecture = files(&["ARCHITECTURE.md"]);
    let block = architecture[0].text.split("```arrows\n").nth(1).unwrap_or_default();
    for line in block.split("```").next().unwrap_or_default().lines() {
        let Some((from, to)) = line.split_once("->") else {
            continue;
        };
        above.insert(from.trim().to_owned());
        for used in to.split_whitespace().filter(|used| above.contains(*used)) {
            problems.push(format!("{} -> {used} goes up", from.trim()));
        }
    }
    for manifest in files(&["Cargo.toml"]) {
        let Some(folder) = manifest.path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let name = folder.rsplit('/').next().unwrap_or_default();
        let Some(allowed) = allowed.get(name) else {
            problems.push(format!("{name}: no line in ARCHITECTURE.md's arrows"));
            continue;
        };
        for used in used_crates(&manifest.text, &known) {
            if !allowed.contains(&used) {
                problems.push(format!("{name} -> {used}: not in ARCHITECTURE.md's arrows"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_dependency_has_its_line_of_reasons() {
    let manifests = files(&["Cargo.toml"]);
    let root = manifests.iter().find(|file| file.path == "Cargo.toml").expect("a root manifest");
    let reasons = files(&["dependencies.md"]);
    let reasons = &reasons.first().expect("docs/dependencies.md exists").text;
    let section = root.text.split("# Everything else").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let mut problems = Vec::new();
    for line in section.lines().filter(|line| line.contains(" = ")) {
        let name = line.split(' ').next().unwrap_or_default();
        if !reasons.contains(&format!("`{name}`")) {
            problems.push(format!("{name}: no line in docs/dependencies.md"));
        }
    }
    assert_none(&problems);
}

#[test]
fn the_architecture_names_only_functions_that_exist() {
    let sources: BTreeMap<String, String> =
        rust_files().into_iter().map(|file| (file.path, file.text)).collect();
    let architecture = files(&["ARCHITECTURE.md"]);
    let mut problems = Vec::new();
    let mut named = 0;
    for code in architecture[0].text.split('`').skip(1).step_by(2) {
        let Some((path, function)) = code.split_once("::").filter(|(p, _)| p.ends_with(".rs"))
        else {
            continue;
        };
        named += 1;
        let declared = |text: &String| {
            text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<"))
        };
        if !sources.get(path).is_some_and(declared) {
            problems.push(format!("ARCHITECTURE.md names {code}, which does not exist"));
        }
    }
    assert!(named > 20, "the walks name functions");
    assert_none(&problems);
}
