//! W20: compiled code that was tampered with, truncated or swapped is never run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tests::{guests, weir_program};
use weir_plugins::bundled::BundledComponent;
use weir_plugins::progress::CompileProgress;
use weir_plugins::trust::Trust;
use weir_plugins::{Loader, Plugins};
use weir_sandbox::code_cache::{self, CodeCache};
use weir_sandbox::compiler::{CompileLimits, Compiler};
use weir_sandbox::{Digest, GuestLimits};
use weir_storage::secrets::SecretKey;

fn guest(name: &'static str, component: &'static str) -> BundledComponent {
    BundledComponent {
        name: name.into(),
        bytes: guests::wat_guest(component).into(),
    }
}

async fn load(folder: &Path, key: [u8; 32], guests: &[BundledComponent]) {
    let cache = Arc::new(CodeCache::new(folder.to_owned(), SecretKey::new(key)));
    let compiler = Compiler::with_program(weir_program(), CompileLimits::default());
    let sandbox = tests::sandbox::sandbox(4);
    let loader = Loader::new(
        sandbox.engine(),
        Some(cache),
        compiler,
        GuestLimits::default(),
    );
    let loader = loader.expect("the imports are linked");
    let plugins = Plugins::load(
        loader,
        Trust::default(),
        guests,
        &CompileProgress::default(),
    )
    .await;
    let plugins = plugins.unwrap_or_else(|(name, error)| panic!("{name}: {error}"));
    assert_eq!(plugins.serving().len(), guests.len());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[tokio::test]
async fn w20_a_file_that_does_not_match_its_tag_is_replaced_and_never_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let guests = [guest("a", "healthy")];
    load(folder.path(), [1; 32], &guests).await;
    let file = files(folder.path()).remove(0);
    let good = fs::read(&file).expect("the cached code");
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for bad in [
        flipped(0),
        flipped(31),
        flipped(32),
        flipped(good.len() / 2),
        flipped(good.len() - 1),
        good[..good.len() - 1].to_vec(),
        good[..40].to_vec(),
        good[..10].to_vec(),
        Vec::new(),
        [&good[..], b"x"].concat(),
    ] {
        fs::write(&file, &bad).expect("the file can be written");
        load(folder.path(), [1; 32], &guests).await;
        // An accepted file would still be there.
        assert!(fs::read(&file).expect("the cached code") == good);
    }
}

#[tokio::test]
async fn w20_code_under_another_key_or_of_another_component_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    load(folder.path(), [1; 32], &[guest("a", "healthy")]).await;
    let first = files(folder.path()).remove(0);
    let under_first_key = fs::read(&first).expect("the cached code");
    load(folder.path(), [2; 32], &[guest("a", "healthy")]).await;
    let under_second_key = fs::read(&first).expect("the cached code");
    assert!(
        under_first_key[..32] != under_second_key[..32],
        "another tag"
    );
    assert!(
        under_first_key[32..] == under_second_key[32..],
        "the same code"
    );

    load(folder.path(), [2; 32], &[guest("b", "borrowed-name")]).await;
    let second = files(folder.path())
        .into_iter()
        .find(|file| *file != first)
        .expect("another file");
    let own = fs::read(&second).expect("the cached code");
    fs::copy(&first, &second).expect("the file can be written");
    load(folder.path(), [2; 32], &[guest("b", "borrowed-name")]).await;
    assert!(fs::read(&second).expect("the cached code") == own);
}

#[tokio::test]
async fn code_that_no_start_uses_any_more_is_removed_and_nothing_else_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = [1; 32];
    let guests = [guest("a", "healthy"), guest("b", "borrowed-name")];
    load(folder.path(), key, &guests).await;
    let digest = Digest::of(&guests[0].bytes).to_string();
    let is_of_first = |file: &PathBuf| file.to_string_lossy().contains(&digest);
    let (used, unused): (Vec<_>, Vec<_>) = files(folder.path()).into_iter().partition(is_of_first);
    let (used, unused) = (&used[0], &unused[0]);
    let half_written = used.with_extension(format!("{}.tmp", "0".repeat(32)));
    let being_written = used.with_extension(format!("{}.tmp", "1".repeat(32)));
    let strangers = ["notes.txt", "x.tmp", "a-b.cwasm"].map(|name| folder.path().join(name));
    for file in strangers.iter().chain([&half_written, &being_written]) {
        fs::write(file, "x").expect("the file can be written");
    }
    let now = SystemTime::now();
    let age = |file: &Path, age: Duration| {
        let file = fs::File::options().append(true).open(file);
        let file = file.expect("the file can be written");
        file.set_modified(now - age).expect("its owner may");
    };
    for file in strangers.iter().chain([used, unused]) {
        age(file, code_cache::UNUSED_FOR * 2);
    }
    age(&half_written, Duration::from_hours(2));

    // Uses one of the two.
    load(folder.path(), key, &guests[..1]).await;
    CodeCache::new(folder.path().to_owned(), SecretKey::new(key)).remove_unused(now);
    assert!(used.exists() && !unused.exists());
    assert!(being_written.exists() && !half_written.exists());
    assert!(strangers.iter().all(|file| file.exists()));
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_costs_time_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocked = folder.path().join("file");
    fs::write(&blocked, "in the way").expect("the file can be written");
    load(&blocked, [1; 32], &[guest("a", "healthy")]).await;
}
