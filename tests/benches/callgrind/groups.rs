//! The groups of functions.

/// A function of a profile.
pub(super) struct Function<'a> {
    /// The demangled name.
    pub(super) name: &'a str,
    /// Its source, if known.
    pub(super) file: &'a str,
    /// The program or library.
    pub(super) object: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Wasmtime,
    /// Compiled code of guests. Callgrind knows neither its functions nor an object.
    Guest,
    Sqlite,
    /// `memcpy`, `memmove` and `memset`.
    Moves,
    Allocation,
    Serde,
    Tokio,
    /// hyper, and the crates of HTTP beside it.
    Hyper,
    Tracing,
    Ours,
    /// The standard library, as far as its code has no type of another crate.
    Std,
    Other,
}

impl Group {
    pub(crate) const ALL: [Self; 12] = [
        Self::Wasmtime,
        Self::Guest,
        Self::Sqlite,
        Self::Moves,
        Self::Allocation,
        Self::Serde,
        Self::Tokio,
        Self::Hyper,
        Self::Tracing,
        Self::Ours,
        Self::Std,
        Self::Other,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wasmtime => "wasmtime",
            Self::Guest => "guest",
            Self::Sqlite => "SQLite",
            Self::Moves => "moves",
            Self::Allocation => "allocation",
            Self::Serde => "serde",
            Self::Tokio => "tokio",
            Self::Hyper => "hyper",
            Self::Tracing => "tracing",
            Self::Ours => "ours",
            Self::Std => "std",
            Self::Other => "other",
        }
    }

    pub(super) fn of(function: &Function<'_>) -> Self {
        let name = function.name;
        if function.object == "???" || function.object.is_empty() {
            return Self::Guest;
        }
        if ["memcpy", "memmove", "mempcpy", "memset"]
            .iter()
            .any(|moves| name.trim_start_matches('_').starts_with(moves))
        {
            return Self::Moves;
        }
        if is_allocation(function) {
            return Self::Allocation;
        }
        if function.file.ends_with("sqlite3.c") || name.starts_with("sqlite3") {
            return Self::Sqlite;
        }
        // Derived code is in the module of its type.
        if name.contains("<impl serde") || name.contains(" as serde") {
            return Self::Serde;
        }
        match first_crate(name) {
            Some(name) => Self::of_crate(name),
            None if is_of_std(name) => Self::Std,
            None => Self::Other,
        }
    }

    fn of_crate(name: &str) -> Self {
        let begins_with = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
        if begins_with(&["wasmtime", "cranelift", "wasmparser", "wasi"]) {
            Self::Wasmtime
        } else if begins_with(&["sqlx", "rusqlite", "libsqlite3"]) {
            Self::Sqlite
        } else if begins_with(&["serde", "itoa", "ryu", "zmij"]) {
            Self::Serde
        } else if begins_with(&["tokio", "mio", "futures", "parking_lot"]) {
            Self::Tokio
        } else if begins_with(&["hyper", "http", "h2", "axum", "tower", "matchit", "reqwest"]) {
            Self::Hyper
        } else if begins_with(&["tracing", "opentelemetry", "sharded_slab"]) {
            Self::Tracing
        // The proxy is a role of this program.
        } else if begins_with(&["weir", "instructions"]) {
            Self::Ours
        } else {
            Self::Other
        }
    }
}

fn is_allocation(function: &Function<'_>) -> bool {
    let name = function.name;
    let of_libc = ["malloc", "calloc", "realloc", "free", "cfree"];
    ["mimalloc", "/malloc/"]
        .iter()
        .any(|folder| function.file.contains(folder))
        || [
            "mi_",
            "_mi_",
            "_int_",
            "__rust_",
            "__rustc::__rust_",
            "__rdl_",
            "__rg_",
        ]
        .iter()
        .any(|begin| name.starts_with(begin))
        || of_libc.contains(&name.trim_start_matches('_').trim_start_matches("libc_"))
        || [
            "mimalloc::",
            "libmimalloc_sys::",
            "alloc::raw_vec::",
            "alloc::alloc::",
        ]
        .iter()
        .any(|path| name.trim_start_matches('<').starts_with(path))
}

fn is_of_std(name: &str) -> bool {
    ["core::", "alloc::", "std::"]
        .iter()
        .any(|path| name.contains(path))
}

/// Returns the first crate in a name that is not part of the standard library. It is the owner of a generic function of the
/// standard library, such as of `core::ptr::drop_in_place<hyper::Error>`.
fn first_crate(name: &str) -> Option<&str> {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut from = 0;
    while let Some(found) = name[from..].find("::") {
        let end = from + found;
        from = end + 2;
        let word = name[..end].rsplit(|letter| !is_of_word(letter)).next()?;
        let before = &name[..end - word.len()];
        let is_root = !word.is_empty() && !before.ends_with([':', '{', '}']);
        if is_root && !["core", "alloc", "std", "hashbrown", "__rustc", "_"].contains(&word) {
            return Some(word);
        }
    }
    None
}
