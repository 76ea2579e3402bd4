//! The table "Where to change what" of `host/README.md`: each row has a scripted change in `tests/changes/`.
//!
//! A script is a TOML file. Its `row` is the first cell of the row, and it edits the files that the row names, all of them
//! and no others. So a row fails here if a file moves, if an anchor in a file disappears, or if the row forgets a file.
//! `tests/run --changes` compiles the scripted changes, too, and runs tests on the changed copy.
//!
//! | Keys of an `[[edit]]` | Effect |
//! |---|---|
//! | `file`, `create` | creates the file with this text; `NEXT` in its name is the number of the next migration |
//! | `file`, `after` or `before`, `insert` | inserts text after or before the only line that contains the anchor |
//! | `file`, `replace`, `with` | replaces the only occurrence of a text |
//! | `folder`, `copy`, `replace`, `with` | copies the folder `copy`, and replaces a text everywhere in the copy |

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::source::{all_files, files, root};

/// The folder of paths in the table, unless they begin with a folder of the repository.
const BASE: &str = "host/";

/// Folders of the repository that paths in the table begin with.
const FOLDERS: [&str; 5] = ["host/", "migrations/", "plugins/", "tests/", "wit/"];

/// A row of the table.
struct Row {
    /// The first cell, as in "add an error code".
    task: String,
    /// The paths of the second cell.
    places: Vec<String>,
}

/// A script of `tests/changes/`.
struct Change {
    /// The name of its file.
    name: String,
    row: String,
    edits: Vec<Edit>,
}

/// A step of a change. Paths are relative to the repository.
enum Edit {
    Create {
        file: String,
        text: String,
    },
    Insert {
        file: String,
        anchor: String,
        is_before: bool,
        text: String,
    },
    Replace {
        file: String,
        text: String,
        with: String,
    },
    Copy {
        from: String,
        /// With a slash at its end.
        to: String,
        text: String,
        with: String,
    },
}

impl Row {
    /// Reads a line of the table; `None` for other lines and for its heading.
    fn read(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let (task, places) = cells.split_once(" | ")?;
        let words = places.split('`').skip(1).step_by(2);
        let is_path = |word: &&str| {
            let extension = Path::new(word).extension();
            word.contains('/') || extension.is_some_and(|it| it == "rs" || it == "toml")
        };
        (task != "To …").then(|| Self {
            task: task.to_owned(),
            places: words.filter(is_path).map(str::to_owned).collect(),
        })
    }
}

fn rows() -> Vec<Row> {
    let readme = fs::read_to_string(root().join("host/README.md")).expect("the README");
    let (_, section) = readme
        .split_once("## Where to change what")
        .expect("the section");
    section.lines().filter_map(Row::read).collect()
}

/// A path of the table, relative to the repository. `None` for the name of a file: files of several folders may have it,
/// as in "`settings.rs` of the feature".
fn place_in_repository(place: &str) -> Option<String> {
    if FOLDERS.iter().any(|folder| place.starts_with(folder)) {
        return Some(place.to_owned());
    }
    place.contains('/').then(|| format!("{BASE}{place}"))
}

/// Whether a place of a row names an edited file.
fn covers(place: &str, file: &str) -> bool {
    match place_in_repository(place) {
        Some(folder) if folder.ends_with('/') => file.starts_with(&folder),
        Some(path) => file == path,
        None => file.rsplit('/').next() == Some(place),
    }
}

impl Change {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("UTF-8").to_owned();
        let text = fs::read_to_string(path).expect("UTF-8");
        let script: toml::Table =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let edits = script.get("edit").and_then(toml::Value::as_array);
        let edits = edits.unwrap_or_else(|| panic!("{name} has no edits"));
        let edits = edits.iter().filter_map(toml::Value::as_table);
        Self {
            row: text_of(&script, "row"),
            edits: edits.map(Edit::read).collect(),
            name,
        }
    }

    /// The edited files; a copied folder with a slash at its end.
    fn files(&self) -> BTreeSet<&str> {
        let files = self.edits.iter().map(|edit| match edit {
            Edit::Create { file, .. } | Edit::Insert { file, .. } | Edit::Replace { file, .. } => {
                &**file
            }
            Edit::Copy { to, .. } => &**to,
        });
        files.collect()
    }
}

fn changes() -> Vec<Change> {
    let scripts = files(&root().join("tests/changes"), "toml");
    scripts.iter().map(|path| Change::read(path)).collect()
}

fn text_of(table: &toml::Table, key: &str) -> String {
    let text = table.get(key).and_then(toml::Value::as_str);
    text.unwrap_or_else(|| panic!("there is no {key} in\n{table}"))
        .to_owned()
}

impl Edit {
    fn read(table: &toml::Table) -> Self {
        let text = |key| text_of(table, key);
        if table.contains_key("copy") {
            return Self::Copy {
                from: text("copy"),
                to: text("folder") + "/",
                text: text("replace"),
                with: text("with"),
            };
        }
        let file = text("file");
        if table.contains_key("create") {
            let text = text("create");
            return Self::Create { file, text };
        }
        if table.contains_key("replace") {
            let (text, with) = (text("replace"), text("with"));
            return Self::Replace { file, text, with };
        }
        let is_before = table.contains_key("before");
        Self::Insert {
            file,
            anchor: text(if is_before { "before" } else { "after" }),
            is_before,
            text: text("insert"),
        }
    }
}

/// The text of edited files, by path.
#[derive(Default)]
struct Edited(BTreeMap<String, String>);

impl Edited {
    fn of(changes: &[&Change]) -> Self {
        let mut edited = Self::default();
        for change in changes {
            for edit in &change.edits {
                if let Err(problem) = edited.apply(edit) {
                    panic!("tests/changes/{}.toml: {problem}", change.name);
                }
            }
        }
        edited
    }

    fn text(&self, file: &str) -> Result<String, String> {
        match self.0.get(file) {
            Some(text) => Ok(text.clone()),
            None => {
                fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))
            }
        }
    }

    /// The file with the number of a new migration in the place of `NEXT`: one number for both databases.
    fn numbered(&self, file: &str) -> String {
        let Some((folder, name)) = file.split_once("NEXT") else {
            return file.to_owned();
        };
        let released = files(&root().join("migrations"), "sql");
        let numbers = released.iter().filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            name.get(..4)?.parse::<usize>().ok()
        });
        let released = numbers.max().unwrap_or_default();
        let new: BTreeSet<_> = self.0.keys().filter_map(|known| migration(known)).collect();
        let known = new.iter().find(|(_, other)| *other == name);
        let number = known.map_or(released + new.len() + 1, |(number, _)| *number);
        format!("{folder}{number:04}{name}")
    }

    fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        match edit {
            Edit::Create { file, text } => {
                self.0.insert(self.numbered(file), text.clone());
            }
            Edit::Insert {
                file,
                anchor,
                is_before,
                text,
            } => {
                let changed = insert(&self.text(file)?, anchor, *is_before, text);
                let changed = changed.map_err(|problem| format!("{file}: {problem}"))?;
                self.0.insert(file.clone(), changed);
            }
            Edit::Replace { file, text, with } => {
                let old = self.text(file)?;
                match old.matches(&**text).count() {
                    1 => self.0.insert(file.clone(), old.replacen(&**text, with, 1)),
                    count => return Err(format!("{file} has {count} times: {text}")),
                };
            }
            Edit::Copy {
                from,
                to,
                text,
                with,
            } => {
                let folder = root().join(from);
                for path in all_files(&folder) {
                    let file = path.strip_prefix(&folder).expect("it lies below");
                    let file = format!("{to}{}", file.display());
                    let copied = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                    self.0.insert(file, copied.replace(&**text, with));
                }
            }
        }
        Ok(())
    }
}

/// The number and the remaining name of a migration for PostgreSQL or SQLite.
fn migration(file: &str) -> Option<(usize, &str)> {
    let name = file.strip_prefix("migrations/")?.split_once('/')?.1;
    let (number, rest) = name.split_at_checked(4)?;
    Some((number.parse().ok()?, rest))
}

/// Inserts a text before or after the only line that contains the anchor.
fn insert(text: &str, anchor: &str, is_before: bool, inserted: &str) -> Result<String, String> {
    let found: Vec<_> = text
        .split_inclusive('\n')
        .enumerate()
        .filter(|(_, line)| line.contains(anchor))
        .map(|(number, _)| number)
        .collect();
    let [number] = found[..] else {
        return Err(format!("{} lines contain: {anchor}", found.len()));
    };
    let lines_before = if is_before { number } else { number + 1 };
    let lines = text.split_inclusive('\n');
    let start: usize = lines.take(lines_before).map(str::len).sum();
    Ok([&text[..start], inserted, &text[start..]].concat())
}

#[test]
fn every_row_has_a_change_that_edits_the_places_of_the_row() {
    let (rows, changes) = (rows(), changes());
    assert!(rows.len() >= 12, "only {} rows", rows.len());
    let mut problems = Vec::new();
    for Row { task, places } in &rows {
        for place in places {
            let path = place_in_repository(place);
            if path.is_some_and(|path| !root().join(path).exists()) {
                problems.push(format!("{task}: there is no {place}"));
            }
        }
        let of_row: Vec<_> = changes
            .iter()
            .filter(|change| change.row == *task)
            .collect();
        if of_row.is_empty() {
            problems.push(format!(
                "{task}: add a script to tests/changes/, or delete the row"
            ));
        }
        for change in of_row {
            let (name, files) = (&change.name, change.files());
            let is_edited = |place: &str| files.iter().any(|file| covers(place, file));
            let is_named = |file: &str| places.iter().any(|place| covers(place, file));
            let unedited = places.iter().filter(|place| !is_edited(place));
            problems.extend(unedited.map(|place| format!("{name} does not edit {place}")));
            let unnamed = files.iter().filter(|file| !is_named(file));
            problems.extend(unnamed.map(|file| format!("{task}: the row does not name {file}")));
        }
    }
    let tasks: BTreeSet<_> = rows.iter().map(|row| &*row.task).collect();
    let stale = changes
        .iter()
        .filter(|change| !tasks.contains(&*change.row));
    problems.extend(stale.map(|change| format!("{} has no row: {}", change.name, change.row)));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_change_fits_the_source() {
    let changes = changes();
    for change in &changes {
        assert!(!Edited::of(&[change]).0.is_empty(), "{}", change.name);
    }
    Edited::of(&changes.iter().collect::<Vec<_>>());
}

#[test]
fn text_is_inserted_at_the_only_line_with_the_anchor() {
    let text = "a\nb\nc\n";
    assert_eq!(
        insert(text, "b", true, "x\n").as_deref(),
        Ok("a\nx\nb\nc\n")
    );
    assert_eq!(
        insert(text, "b", false, "x\n").as_deref(),
        Ok("a\nb\nx\nc\n")
    );
    assert!(insert("a\nab\n", "a", true, "x\n").is_err());
    assert!(insert(text, "d", true, "x\n").is_err());
}

/// The tests that hold for every file and every endpoint. They run on the copy with all changes: a change must pass them
/// with the files of its row alone.
const GUARDS: [&str; 7] = [
    "tidy::",
    "openapi::",
    "tenants::",
    "organisations::every_endpoint_has_a_permission",
    "keys::every_endpoint_that_is_not_open_is_closed_to_strangers",
    "settings_reference::",
    "error_codes::",
];

#[test]
#[ignore = "builds the workspace again: tests/run --changes"]
fn the_changes_compile_and_pass_the_guards() {
    let changes = changes();
    let workspace = root().join("target/changes/workspace");
    // One compilation serves all changes; compiling each change takes minutes.
    if !compiles(&workspace, &changes.iter().collect::<Vec<_>>()) {
        for change in &changes {
            let name = &change.name;
            assert!(compiles(&workspace, &[change]), "{name} does not compile");
        }
        panic!("each change compiles, but not all together");
    }
    let test = ["test", "--package", "tests", "--test", "it", "--"];
    let passes = cargo(&workspace, &[&test[..], &GUARDS].concat());
    assert!(passes, "a guard fails on the changed copy");
}

/// Whether the host and the new plugins compile with these changes.
///
/// `tests` and `weir-bundled` are left out: they build WebAssembly components, which takes minutes.
fn compiles(workspace: &Path, changes: &[&Change]) -> bool {
    let edited = Edited::of(changes);
    write_workspace(workspace, &edited);
    let host = [
        "check",
        "--workspace",
        "--exclude",
        "tests",
        "--exclude",
        "weir-bundled",
    ];
    let plugins = new_packages(&edited);
    let mut guest = vec!["check", "--target", "wasm32-wasip2"];
    for package in &plugins {
        guest.extend(["--package", package]);
    }
    cargo(workspace, &host) && (plugins.is_empty() || cargo(workspace, &guest))
}

/// Writes a copy of the repository, with the edited files. A file that is already as it should be stays, so that cargo
/// builds only changes; so does the copy's own `target`.
fn write_workspace(workspace: &Path, edited: &Edited) {
    let mut wanted: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for entry in fs::read_dir(root()).expect("the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        let found = match path.is_file() {
            true => vec![path.clone()],
            false if name == "target" || name == ".git" => Vec::new(),
            false => all_files(&path),
        };
        for file in found {
            let bytes = fs::read(&file).expect("the file can be read");
            let file = file.strip_prefix(root()).expect("it lies below");
            wanted.insert(file.to_owned(), bytes);
        }
    }
    for (file, text) in &edited.0 {
        wanted.insert(file.into(), text.clone().into_bytes());
    }
    for (file, bytes) in &wanted {
        let path = workspace.join(file);
        if fs::read(&path).ok().as_ref() != Some(bytes) {
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, bytes).expect("the file can be written");
        }
    }
    for path in all_files(workspace) {
        let file = path.strip_prefix(workspace).expect("it lies below");
        if !file.starts_with("target") && !wanted.contains_key(file) {
            fs::remove_file(&path).expect("the file can be removed");
        }
    }
}

/// The packages of new folders.
fn new_packages(edited: &Edited) -> Vec<String> {
    let manifests = edited
        .0
        .iter()
        .filter(|(file, _)| file.ends_with("/Cargo.toml") && !root().join(file).exists());
    let names = manifests.map(|(file, text)| {
        let manifest: toml::Table = toml::from_str(text).expect("cargo reads the original");
        let name = manifest["package"]["name"].as_str();
        name.unwrap_or_else(|| panic!("{file} has no name"))
            .to_owned()
    });
    names.collect()
}

/// Runs cargo in a target folder that all runs share.
fn cargo(workspace: &Path, arguments: &[&str]) -> bool {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo runs the tests"));
    let (command, rest) = arguments.split_first().expect("a command");
    cargo
        .current_dir(workspace)
        // Without `--locked`: new packages change the lock file.
        .args([command, "--offline"])
        .args(rest)
        .env("CARGO_TARGET_DIR", root().join("target/changes/build"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS");
    cargo.status().expect("cargo runs").success()
}
