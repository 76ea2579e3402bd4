//! Instructions and cache misses of a running process, by callgrind.
//!
//! Debian's valgrind gives a program 128 GiB of address space. The pooled memory of weir's guests reserves 8 GiB for each, and
//! without it weir runs other code. So a copy of the tool has a larger limit: see [`Callgrind::install`].

mod groups;
mod profile;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) use self::groups::Group;
pub(crate) use self::profile::{Costs, Events};
use crate::loads::Process;

/// The folder of Debian's tools, and the tool.
const TOOLS: &str = "/usr/libexec/valgrind";
const TOOL: &str = "callgrind-amd64-linux";

/// The last address of a program: a constant in the tool, and its replacement.
const LAST_ADDRESS: u64 = (128 << 30) - 1;
const NEW_LAST_ADDRESS: u64 = (16 << 40) - 1;

/// Callgrind counts each byte of `rep movsb` and `rep stosb` as an instruction, so that a page to clear would cost as much as a
/// tenth of a request. glibc then copies and clears by vectors.
const WITHOUT_REP: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff";

/// A callgrind for programs with large reservations of address space.
pub(crate) struct Callgrind {
    tools: tempfile::TempDir,
    profiles: PathBuf,
}

impl Callgrind {
    /// Copies the tool, with a larger address space. The processes write their profiles to the folder `profiles`.
    pub(crate) fn install(profiles: PathBuf) -> Self {
        let tools = tempfile::tempdir().unwrap();
        let installed = fs::read_dir(TOOLS).expect("Debian's package valgrind is installed");
        for file in installed {
            let file = file.unwrap();
            let copy = tools.path().join(file.file_name());
            if file.file_name() == TOOL {
                fs::copy(file.path(), copy).unwrap();
            } else {
                std::os::unix::fs::symlink(file.path(), copy).unwrap();
            }
        }
        let tool = tools.path().join(TOOL);
        let mut bytes = fs::read(&tool).unwrap();
        let constant = LAST_ADDRESS.to_le_bytes();
        let places: Vec<_> = memchr::memmem::find_iter(&bytes, &constant).collect();
        let [place] = places[..] else {
            panic!("another release of valgrind than 3.19: its last address is unknown");
        };
        bytes[place..place + 8].copy_from_slice(&NEW_LAST_ADDRESS.to_le_bytes());
        fs::write(&tool, bytes).unwrap();
        fs::create_dir_all(&profiles).unwrap();
        Self { tools, profiles }
    }

    /// Extends a launcher: the launched process can be observed, and counts nothing yet.
    pub(crate) fn launcher(&self, mut launcher: Vec<String>, name: &str) -> Vec<String> {
        launcher.extend([
            "env".to_owned(),
            format!("VALGRIND_LIB={}", self.tools.path().display()),
            format!("GLIBC_TUNABLES={WITHOUT_REP}"),
            "valgrind".to_owned(),
            "--quiet".to_owned(),
            "--tool=callgrind".to_owned(),
            "--cache-sim=yes".to_owned(),
            "--instr-atstart=no".to_owned(),
            format!("--callgrind-out-file={}", self.profile(name).display()),
        ]);
        launcher
    }

    fn profile(&self, name: &str) -> PathBuf {
        self.profiles.join(name)
    }

    /// Observes a process with this name.
    pub(crate) fn observe<'a>(&'a self, process: &'a Process, name: &'a str) -> Observed<'a> {
        Observed {
            callgrind: self,
            process,
            name,
            dumps: 0,
        }
    }
}

/// A process under callgrind.
pub(crate) struct Observed<'a> {
    callgrind: &'a Callgrind,
    process: &'a Process,
    name: &'a str,
    /// Profiles that the process has written.
    dumps: usize,
}

impl Observed<'_> {
    /// Counts from now on, until [`Self::ignore`].
    pub(crate) fn count(&self) {
        self.command(&["instrumentation", "on"]);
    }

    pub(crate) fn ignore(&self) {
        self.command(&["instrumentation", "off"]);
    }

    /// Sets all counts to zero.
    pub(crate) fn reset(&self) {
        self.command(&["zero"]);
    }

    /// Returns the counts since the last reset, and resets them. The profile remains, with the name of the run.
    pub(crate) fn take(&mut self, run: &str) -> Costs {
        self.command(&["dump"]);
        self.dumps += 1;
        let written = self
            .callgrind
            .profile(&format!("{}.{}", self.name, self.dumps));
        let profile = self.callgrind.profile(&format!("{}-{run}", self.name));
        fs::rename(written, &profile).expect("callgrind has written a profile");
        profile::read(&fs::read(profile).unwrap())
    }

    /// Sends a command to callgrind, and waits for its end.
    fn command(&self, command: &[&str]) {
        let sent = Command::new("vgdb")
            .arg(format!("--pid={}", self.process.id()))
            .args(command)
            .stdin(Stdio::null())
            .output()
            .expect("Debian's package valgrind has vgdb");
        assert!(
            sent.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&sent.stderr)
        );
    }
}
