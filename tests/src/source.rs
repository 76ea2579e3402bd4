//! The files of this repository, for tests that read them, and the lists that tests derive from them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
}

/// Returns the files below a folder with this ending, sorted; `ending` has no dot.
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = all_files(folder);
    found.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == ending)
    });
    found
}

/// All files below a folder, sorted.
pub fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// The file names of a database's migrations, sorted.
pub fn migrations(database: &str) -> Vec<String> {
    let folders = ["both", database].map(|folder| root().join("migrations").join(folder));
    let paths = folders.iter().flat_map(|folder| files(folder, "sql"));
    let mut names: Vec<_> = paths
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The adapter that answers by itself. Every other adapter calls a provider.
const DEMO: &str = "demo";

/// The names of all adapters, sorted: the folders of `plugins/adapters/`.
pub fn adapters() -> Vec<String> {
    let folder = root().join("plugins/adapters");
    let entries = fs::read_dir(&folder).expect("the folder of adapters");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("plugin.toml").exists())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The adapters that call a provider: `openai`, then the others by name.
pub fn provider_adapters() -> Vec<String> {
    let mut names = adapters();
    names.retain(|name| name != DEMO);
    // The column of `openai` comes first in the tables of the guides.
    names.sort_by_key(|name| name != "openai");
    names
}

/// Each adapter that calls a provider, with the data of a test for it.
///
/// # Panics
///
/// If an adapter has no data; the message names the adapters and `place`, the code to extend.
pub fn for_each_provider_adapter<T>(
    place: &str,
    data: impl Fn(&str) -> Option<T>,
) -> Vec<(String, T)> {
    let mut found = Vec::new();
    let mut missing = BTreeSet::new();
    for name in provider_adapters() {
        match data(&name) {
            Some(data) => found.push((name, data)),
            None => {
                missing.insert(name);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "these adapters have no data for this test: {missing:?}; add the data to {place}"
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_the_only_adapter_without_a_provider() {
        let mut names = provider_adapters();
        names.push(DEMO.to_owned());
        names.sort();
        assert_eq!(names, adapters());
    }

    #[test]
    #[should_panic(expected = "{\"openai\"}; add the data to the list")]
    fn an_adapter_without_data_is_named_with_the_place_of_the_data() {
        for_each_provider_adapter("the list", |name| (name != "openai").then_some(()));
    }
}
