//! Whether a preloaded library would have any effect in a program, and if not, why and what to do.

use std::{
    env,
    ffi::{CString, OsStr},
    fmt,
    fs::{self, File},
    io::Read,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use crate::{
    elf::{self, Elf},
    library::Library,
};

/// A program, looked at.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file.
    pub path: PathBuf,
    /// Interpreters that a script goes through, the last one is the program that runs.
    pub through: Vec<PathBuf>,
    /// Headers of what runs in the end.
    pub elf: Option<Elf>,
    /// Why the library would have no effect.
    pub obstacle: Option<Obstacle>,
}

/// Why a preload has no effect, or the program does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    NotFound,
    NotExecutable,
    Unreadable(String),
    NotElf,
    SetUid(u32),
    SetGid(u32),
    FileCapabilities,
    Static,
    OtherMachine { program: String, library: String },
    OtherLoader(String),
    ScriptLoop,
}

impl Obstacle {
    /// Whether it cannot be started at all.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Obstacle::NotFound | Obstacle::NotExecutable)
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Obstacle::NotFound => "check the name and PATH",
            Obstacle::NotExecutable => "name a program, or give it the x permission",
            Obstacle::Unreadable(_) => "run as a user who may read the file",
            Obstacle::NotElf => "name the program itself, or the interpreter that runs this file",
            Obstacle::SetUid(_) | Obstacle::SetGid(_) => {
                "run a copy without the set-id bit; for the kernel's AF_XDP give that copy ambient capabilities \
                 (setpriv --inh-caps +net_raw --ambient-caps +net_raw, AmbientCapabilities= in a systemd unit)"
            }
            Obstacle::FileCapabilities => {
                "run a copy without them (cp drops them, setcap -r takes them away); for the kernel's AF_XDP give that \
                 copy ambient capabilities (setpriv --inh-caps +net_raw --ambient-caps +net_raw, AmbientCapabilities= \
                 in a systemd unit)"
            }
            Obstacle::Static => "link it anew: cc PROG.c $(pkg-config --cflags --libs --static slipring)",
            Obstacle::OtherMachine { .. } => {
                "build the library for the program's architecture, and name it with --library"
            }
            Obstacle::OtherLoader(_) => "build the program with glibc, or link it with libslipring.a",
            Obstacle::ScriptLoop => "name the interpreter",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set_id = "so the loader ignores LD_PRELOAD and the library ignores SLIPRING_DEVICES";
        match self {
            Obstacle::NotFound => f.write_str("there is no such program"),
            Obstacle::NotExecutable => f.write_str("it may not be executed"),
            Obstacle::Unreadable(why) => write!(f, "it cannot be looked into: {why}"),
            Obstacle::NotElf => f.write_str("it is neither an ELF program of this byte order nor a script"),
            Obstacle::SetUid(owner) => write!(f, "it is set-user-ID (to user {owner}), {set_id}"),
            Obstacle::SetGid(group) => write!(f, "it is set-group-ID (to group {group}), {set_id}"),
            Obstacle::FileCapabilities => write!(f, "it has file capabilities, {set_id}"),
            Obstacle::Static => f.write_str("it is statically linked, so no loader runs that could preload a library"),
            Obstacle::OtherMachine { program, library } => {
                write!(f, "it is a {program} program and the library is {library}, so the loader skips the library")
            }
            Obstacle::OtherLoader(loader) => {
                write!(f, "it uses the loader {loader}, not glibc's, for which the library is built")
            }
            Obstacle::ScriptLoop => f.write_str("it is a script whose interpreters are scripts without end"),
        }
    }
}

/// Interpreters of interpreters that the kernel follows.
const MOST_SCRIPTS: usize = 5;

/// Find and look at a program. `library`: what would be preloaded.
pub(crate) fn inspect(name: &OsStr, library: Option<&Library>) -> Program {
    let Some(path) = find(name) else {
        return Program {
            path: PathBuf::from(name),
            through: Vec::new(),
            elf: None,
            obstacle: Some(Obstacle::NotFound),
        };
    };
    let mut program = Program { path: path.clone(), through: Vec::new(), elf: None, obstacle: None };
    let mut at = path;
    for _ in 0..=MOST_SCRIPTS {
        match look(&at, library) {
            Ok(Look::Program(elf)) => {
                program.elf = Some(elf);
                return program;
            }
            Ok(Look::Script(interpreter)) => {
                program.through.push(interpreter.clone());
                at = interpreter;
            }
            Err(obstacle) => {
                program.obstacle = Some(obstacle);
                return program;
            }
        }
    }
    program.obstacle = Some(Obstacle::ScriptLoop);
    program
}

/// Where `execvp` would find it.
pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return path.exists().then_some(path);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

enum Look {
    Program(Elf),
    Script(PathBuf),
}

fn look(path: &Path, library: Option<&Library>) -> Result<Look, Obstacle> {
    if !path.exists() {
        return Err(Obstacle::NotFound);
    }
    if !is_executable(path) {
        return Err(Obstacle::NotExecutable);
    }
    let unreadable = |e: std::io::Error| Obstacle::Unreadable(e.to_string());
    // The set-id bits tell without reading, and such files are often not readable.
    let set_id = set_id(path);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return Err(set_id.unwrap_or_else(|| unreadable(e))),
    };
    let mut start = [0; 256];
    let n = file.read(&mut start).map_err(unreadable)?;
    if let Some(line) = start[..n].strip_prefix(b"#!") {
        // The kernel ignores a script's own set-id bits and capabilities.
        return script(line).map(Look::Script).ok_or(Obstacle::NotElf);
    }
    if let Some(obstacle) = set_id {
        return Err(obstacle);
    }
    if n > 0 && !start[..n].contains(&0) {
        // Text without a #! line: execvp gives it to the shell.
        return Ok(Look::Script(PathBuf::from("/bin/sh")));
    }
    let elf = elf::read(&file).map_err(unreadable)?.ok_or(Obstacle::NotElf)?;
    let Some(loader) = &elf.interpreter else { return Err(Obstacle::Static) };
    if let Some(library) = library
        && (elf.bits, elf.machine) != (library.elf.bits, library.elf.machine)
    {
        return Err(Obstacle::OtherMachine { program: architecture(&elf), library: architecture(&library.elf) });
    }
    if !Path::new(loader).file_name().is_some_and(|n| n.as_bytes().starts_with(b"ld-linux") || n == "ld.so.1") {
        return Err(Obstacle::OtherLoader(loader.clone()));
    }
    Ok(Look::Program(elf))
}

/// The interpreter of a script, and through `env` the program that env starts.
fn script(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|b| *b == b'\n').next()?;
    let mut words = line.split(|b| matches!(b, b' ' | b'\t')).filter(|w| !w.is_empty()).map(OsStr::from_bytes);
    let interpreter = Path::new(words.next()?);
    if interpreter.file_name().is_some_and(|n| n == "env") {
        let options_or_settings = |w: &OsStr| w.as_bytes().starts_with(b"-") || w.as_bytes().contains(&b'=');
        if let Some(found) = words.find(|w| !options_or_settings(w)).and_then(find) {
            return Some(found);
        }
    }
    Some(interpreter.to_owned())
}

fn architecture(elf: &Elf) -> String {
    let name = match elf.machine {
        3 => "x86",
        40 => "arm",
        62 => "x86-64",
        183 => "aarch64",
        243 => "riscv",
        n => return format!("{}-bit machine-{n}", elf.bits),
    };
    format!("{}-bit {name}", elf.bits)
}

/// Whether executing the file would put the process into secure mode, by the kernel's rules: identities or capabilities
/// that grow. Nothing grows where the file system or the process forbids it, or where the caller is that user already.
fn set_id(path: &Path) -> Option<Obstacle> {
    let meta = fs::metadata(path).ok()?;
    if is_nosuid(path) || has_no_new_privs() {
        return None;
    }
    let mode = meta.permissions().mode();
    if mode & 0o4000 != 0 && meta.uid() != ids().0 {
        return Some(Obstacle::SetUid(meta.uid()));
    }
    // Without the group's x the bit meant mandatory locking, not set-group-ID.
    if mode & 0o2010 == 0o2010 && meta.gid() != ids().1 {
        return Some(Obstacle::SetGid(meta.gid()));
    }
    (ids().0 != 0 && has_file_capabilities(path)).then_some(Obstacle::FileCapabilities)
}

/// Real user and group.
fn ids() -> (u32, u32) {
    // SAFETY: no arguments, cannot fail.
    let user = unsafe { libc::getuid() };
    // SAFETY: no arguments, cannot fail.
    let group = unsafe { libc::getgid() };
    (user, group)
}

fn is_nosuid(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut facts = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a NUL-terminated path and room for one struct.
    let failed = unsafe { libc::statvfs(path.as_ptr(), facts.as_mut_ptr()) } != 0;
    // SAFETY: read only after statvfs has filled it.
    !failed && unsafe { facts.assume_init() }.f_flag & libc::ST_NOSUID != 0
}

fn has_no_new_privs() -> bool {
    // SAFETY: no pointers; the kernel wants the unused arguments to be 0.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: two NUL-terminated strings; length 0 asks for the size only.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = env::temp_dir().join(format!("slipring-program-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Dir(path)
        }

        fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Protects the plain case, and that a library of another architecture is told and not silently skipped.
    #[test]
    fn a_dynamic_program_is_fine_unless_the_library_is_of_another_kind() {
        let me = env::current_exe().unwrap();
        let program = inspect(me.as_os_str(), None);
        assert_eq!(program.obstacle, None);
        let own = program.elf.unwrap();
        let with = |elf: Elf| inspect(me.as_os_str(), Some(&Library { path: "/l".into(), elf })).obstacle;
        assert_eq!(with(own.clone()), None);
        assert!(matches!(with(Elf { bits: 96 - own.bits, ..own }), Some(Obstacle::OtherMachine { .. })));
    }

    #[test]
    fn what_cannot_run_is_told_apart() {
        let dir = Dir::new("kinds");
        let see = |path: PathBuf| inspect(path.as_os_str(), None).obstacle;
        assert_eq!(see(dir.0.join("none")), Some(Obstacle::NotFound));
        assert_eq!(see(dir.0.clone()), Some(Obstacle::NotExecutable));
        assert_eq!(see(dir.file("data", b"text", 0o644)), Some(Obstacle::NotExecutable));
        assert_eq!(see(dir.file("text", b"echo", 0o755)), None, "goes to the shell");
        assert_eq!(see(dir.file("bytes", b"\0\x01", 0o755)), Some(Obstacle::NotElf));
        assert_eq!(see(dir.file("empty", b"", 0o755)), Some(Obstacle::NotElf));
    }

    /// Protects the answer for static programs, with an ELF header that asks for no loader.
    #[test]
    fn a_program_without_a_loader_is_static() {
        let dir = Dir::new("static");
        let mut head = vec![0u8; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        head[18] = 62;
        let path = dir.file("static", &head, 0o755);
        assert_eq!(inspect(path.as_os_str(), None).obstacle, Some(Obstacle::Static));
    }

    /// Protects that a script is judged by what runs it, also through env, and that a circle ends.
    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let dir = Dir::new("script");
        let sh = inspect(dir.file("a", b"#! /bin/sh -e\necho", 0o755).as_os_str(), None);
        assert_eq!((sh.obstacle, sh.through), (None, vec![PathBuf::from("/bin/sh")]));
        let env = inspect(dir.file("b", b"#!/usr/bin/env -S A=1 sh\n", 0o755).as_os_str(), None);
        assert_eq!(env.obstacle, None);
        assert!(env.through[0].ends_with("sh"), "{:?}", env.through);
        let gone = inspect(dir.file("c", b"#!/no/such\n", 0o755).as_os_str(), None);
        assert_eq!(gone.obstacle, Some(Obstacle::NotFound));
        let own = dir.0.join("d");
        dir.file("d", format!("#!{}\n", own.display()).as_bytes(), 0o755);
        assert_eq!(inspect(own.as_os_str(), None).obstacle, Some(Obstacle::ScriptLoop));
    }

    /// Protects the warning for set-id programs, and that there is none where the bit changes nothing.
    #[test]
    fn a_set_user_id_program_of_another_user_is_told() {
        let dir = Dir::new("setid");
        let mine = dir.file("mine", &fs::read("/proc/self/exe").unwrap(), 0o4755);
        assert_eq!(inspect(mine.as_os_str(), None).obstacle, None, "own set-id bit changes nothing");
        if ids().0 == 0 && !is_nosuid(&dir.0) && !has_no_new_privs() {
            std::os::unix::fs::chown(&mine, Some(65534), Some(65534)).unwrap();
            fs::set_permissions(&mine, fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(inspect(mine.as_os_str(), None).obstacle, Some(Obstacle::SetUid(65534)));
            fs::set_permissions(&mine, fs::Permissions::from_mode(0o2755)).unwrap();
            assert_eq!(inspect(mine.as_os_str(), None).obstacle, Some(Obstacle::SetGid(65534)));
        }
    }

    #[test]
    fn every_obstacle_says_what_to_do() {
        for obstacle in [Obstacle::Static, Obstacle::FileCapabilities, Obstacle::SetUid(0), Obstacle::NotFound] {
            assert!(!obstacle.to_string().is_empty() && !obstacle.advice().is_empty());
        }
        assert!(Obstacle::NotFound.is_fatal() && !Obstacle::Static.is_fatal());
    }
}
