//! The copy of the sources into which the mutants are built.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::table::{self, Edit};

/// The program with the unit tests of `lock-runtime`.
const UNIT: &str = "unit";
/// All programs that may contain a test.
const KNOWN: &[&str] = &["conformance", "distlock", "servers", "templates", UNIT];

/// Returns the program of a test, and its name there.
pub fn program(test: &'static str) -> (&'static str, &'static str) {
    let (program, test) = test.split_once(' ').unwrap_or(("conformance", test));
    assert!(KNOWN.contains(&program), "{test}: there is no program `{program}`");
    (program, test)
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SOURCES: &str = "lock-runtime/src";
/// The program with a crate of its own, below the sources.
const COMMAND: &str = "bin/distlock";

/// Writes the copy; returns its folder.
fn write_copy() -> PathBuf {
    let source = folder().join("source");
    let edited = edited();
    copy(Path::new(ROOT), &source, &mut |path| edited.get(path).cloned());
    for folder in ["", COMMAND] {
        write(&source.join(SOURCES).join(folder).join("mutant.rs"), module().as_bytes());
    }
    source
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants")
}

/// Checks that the copy compiles; otherwise returns cargo's output.
pub fn check() -> Result<(), String> {
    let checked =
        cargo("check", &write_copy()).args(["--bins", "--quiet"]).output().expect("cargo can be run");
    if checked.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&checked.stderr).into_owned()) }
}

/// Cargo for the copy's library, with its own target folder: to cargo, the copy is the same package.
fn cargo(command: &str, source: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(source)
        .args([command, "--locked", "-p", "lock-suite", "-p", "lock-runtime", "--lib"])
        .args(["--no-default-features", "--features", &stores()])
        .env("CARGO_TARGET_DIR", folder().join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

/// Writes the copy and builds it. Returns the programs by their names.
pub fn build() -> BTreeMap<&'static str, PathBuf> {
    let source = write_copy();
    let programs: BTreeSet<_> =
        table::mutants().flat_map(|mutant| mutant.caught_by).map(|test| program(test).0).collect();
    let built = cargo("test", &source)
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .args(programs.iter().filter(|name| **name != UNIT).flat_map(|name| ["--test", name]))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be run");
    assert!(built.status.success(), "the mutants do not compile");
    let messages = String::from_utf8(built.stdout).expect("JSON is text");
    let path = |name: &str| {
        let name = if name == UNIT { "lock_runtime" } else { name };
        // A line for each artifact; only the name of its target and its program are needed.
        messages
            .lines()
            .filter(|line| line.contains(&format!("\"name\":\"{name}\"")) && line.contains("\"test\":true"))
            .find_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next())
            .unwrap_or_else(|| panic!("cargo did not build `{name}`"))
            .into()
    };
    programs.into_iter().map(|name| (name, path(name))).collect()
}

/// The features that compile the stores in: those of the root crate that share a name with one of the runtime.
fn stores() -> String {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let features = manifest.lines().filter_map(|line| line.split_once(" = "));
    features
        .filter(|(name, value)| value.starts_with(&format!("[\"lock-runtime/{name}\"")))
        .fold("lock-runtime/memory,lock-suite/distlock".into(), |all, (name, _)| {
            format!("{all},lock-suite/{name}")
        })
}

/// The files of the copy that differ, by their path in the workspace.
///
/// # Panics
/// If an edit no longer fits its file: the mutant has to follow the code.
pub fn edited() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(SOURCES).join(file)).unwrap();
    let mut replace = |name: &str, file: &'static str, from: &str, to: &str| {
        let text = files.entry(file).or_insert_with(|| read(file));
        assert_eq!(text.matches(from).count(), 1, "{name}: not once in {file}: {from}");
        *text = text.replace(from, to);
    };
    replace("all", "lib.rs", "mod background;\n", "mod mutant;\nmod background;\n");
    // The program asks for mutants in Rust only.
    let module = "#[allow(dead_code)]\nmod mutant;\nmod plan;\n";
    replace("all", "bin/distlock/main.rs", "mod plan;\n", module);
    replace(
        "all",
        "backend/kits/redis/net/script.rs",
        "let text = parts.join(\"\\n\");",
        "let text = crate::mutant::script(parts.join(\"\\n\"));",
    );
    replace(
        "all",
        "backend/kits/postgres/statement.rs",
        "let text = without_comments(text);",
        "let text = crate::mutant::script(without_comments(text));",
    );
    let folders = [
        "kits/postgres/sql",
        "kits/redis/scripts",
        "kits/unqueued/scripts",
        "stores/postgres/sql",
        "stores/postgres_advisory/sql",
        "stores/redis/scripts",
        "stores/redisson/scripts",
        "stores/redlock/scripts",
    ]
    .map(|folder| format!("{ROOT}/{SOURCES}/backend/{folder}"));
    let scripts: String = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for mutant in table::mutants() {
        for edit in mutant.edits {
            match edit {
                Edit::Rust { file, from, to } => {
                    let chosen = format!("crate::mutant::is({:?})", mutant.name);
                    replace(mutant.name, file, from, &to.replace("mutant!()", &chosen));
                }
                Edit::Script { from, .. } => {
                    assert!(scripts.contains(from), "{}: in no script: {from}", mutant.name);
                }
            }
        }
    }
    files.into_iter().map(|(file, text)| (Path::new(SOURCES).join(file), text.into_bytes())).collect()
}

/// The module of the copy that knows the chosen mutant.
fn module() -> String {
    let mut scripts = String::new();
    for mutant in table::mutants() {
        for edit in mutant.edits {
            if let Edit::Script { from, to } = edit {
                let name = mutant.name;
                writeln!(scripts, "    if is({name:?}) {{ text = text.replace({from:?}, {to:?}); }}")
                    .expect("a String takes everything");
            }
        }
    }
    format!(
        "pub(crate) fn is(name: &str) -> bool {{\n    \
             static CHOSEN: std::sync::LazyLock<String> =\n        \
                 std::sync::LazyLock::new(|| std::env::var(\"LOCK_MUTANT\").unwrap_or_default());\n    \
             *CHOSEN == name\n\
         }}\n\n\
         pub(crate) fn script(mut text: String) -> String {{\n{scripts}    text\n}}\n"
    )
}

/// Copies a folder; `instead` may return another text for a file.
fn copy(from: &Path, to: &Path, instead: &mut impl FnMut(&Path) -> Option<Vec<u8>>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name(), entry.path());
        // Follows links, too: some files have two names.
        let Ok(kind) = fs::metadata(&path) else { continue };
        if kind.is_dir() {
            if name != "target" && name != ".git" {
                copy(&path, &to.join(name), instead);
            }
        } else if kind.is_file() {
            let relative = path.strip_prefix(ROOT).expect("below it");
            let text = instead(relative).unwrap_or_else(|| fs::read(&path).unwrap());
            write(&to.join(name), &text);
        }
    }
}

/// Leaves a file alone that is already right, so that cargo does not build it again.
fn write(path: &Path, text: &[u8]) {
    if fs::read(path).ok().as_deref() != Some(text) {
        fs::write(path, text).unwrap();
    }
}
