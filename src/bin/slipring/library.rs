//! Where the shared library is: beside the installed program, in a build tree, or where the user says.

use std::{
    env, fmt,
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::elf::{self, Elf};

/// Environment variable that names the library's file.
pub(crate) const VARIABLE: &str = "SLIPRING_LIBRARY";
/// Its name where it is installed: the soname.
const SONAME: &str = "libslipring.so.0";

/// The library that a preload would use.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub path: PathBuf,
    pub elf: Elf,
}

/// Why there is none: one line.
#[derive(Clone, Debug)]
pub(crate) struct NotFound(String);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Find it: `given` (an option), else the environment, else near this program.
pub(crate) fn find(given: Option<&Path>) -> Result<Library, NotFound> {
    if let Some(path) = given {
        return open(path).map_err(|why| NotFound(format!("--library: {why}")));
    }
    if let Some(path) = env::var_os(VARIABLE).filter(|p| !p.is_empty()) {
        return open(Path::new(&path)).map_err(|why| NotFound(format!("{VARIABLE}: {why}")));
    }
    let exe = env::current_exe().map_err(|e| NotFound(format!("cannot tell where this program is: {e}")))?;
    let places = candidates(exe.parent().unwrap_or(Path::new("/")));
    let found = places.iter().find(|p| p.is_file());
    let Some(found) = found else {
        let dirs: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        return Err(NotFound(format!(
            "no {SONAME}; looked for {}. Build it (make), install it, or name it with --library or {VARIABLE}",
            dirs.join(", ")
        )));
    };
    open(found).map_err(NotFound)
}

/// Files that may be it, the likeliest first. `bin`: the directory of this program.
fn candidates(bin: &Path) -> Vec<PathBuf> {
    let up = bin.parent().unwrap_or(bin);
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let mut places = vec![
        // Installed: PREFIX/bin and PREFIX/lib, or Debian's multi-arch directory. A build tree's build/bin and build/lib too.
        up.join("lib").join(SONAME),
        up.join("lib").join(triplet).join(SONAME),
        up.join("lib64").join(SONAME),
    ];
    // cargo's target/PROFILE: what the Makefile linked with optimisation across crates, else cargo's own.
    if up.file_name().is_some_and(|n| n == "target")
        && let Some(root) = up.parent()
    {
        places.push(root.join("build/lib").join(SONAME));
    }
    places.push(bin.join(SONAME));
    places.push(bin.join("libslipring.so"));
    places
}

fn open(path: &Path) -> Result<Library, String> {
    let shown = path.display();
    let absolute = path.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
    let file = File::open(&absolute).map_err(|e| format!("{shown}: {e}"))?;
    match elf::read(&file) {
        Ok(Some(elf)) => Ok(Library { path: absolute, elf }),
        Ok(None) => Err(format!("{shown} is no shared library")),
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

impl Library {
    /// Why the loader would not take this path from LD_PRELOAD, which separates names by blanks and colons.
    pub(crate) fn preload_obstacle(&self) -> Option<String> {
        let odd = |b: &u8| b.is_ascii_whitespace() || matches!(b, b':' | b'$');
        let path = self.path.as_os_str();
        path.as_bytes().iter().any(odd).then(|| {
            format!(
                "{} cannot stand in LD_PRELOAD, which takes no blank, \":\" or \"$\" in a name: install the library \
                 elsewhere, or name a copy with --library",
                self.path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the order in which an installed and a built library are found.
    #[test]
    fn the_library_is_looked_for_where_make_puts_it() {
        let list = |bin: &str| candidates(Path::new(bin));
        assert_eq!(list("/usr/bin")[0], Path::new("/usr/lib/libslipring.so.0"));
        assert!(
            list("/usr/bin")
                .contains(&PathBuf::from(format!("/usr/lib/{}-linux-gnu/libslipring.so.0", env::consts::ARCH)))
        );
        let built = list("/src/slipring/target/release");
        let build = built.iter().position(|p| p == Path::new("/src/slipring/build/lib/libslipring.so.0"));
        let cargo = built.iter().position(|p| p == Path::new("/src/slipring/target/release/libslipring.so"));
        assert!(build.unwrap() < cargo.unwrap());
    }

    /// Protects against a preload that the loader would take apart.
    #[test]
    fn a_path_that_ld_preload_cannot_hold_is_told() {
        let elf = Elf { bits: 64, machine: 62, interpreter: None, needed: Vec::new() };
        let at = |path: &str| Library { path: path.into(), elf: elf.clone() }.preload_obstacle();
        assert!(at("/usr/lib/libslipring.so.0").is_none());
        for path in ["/a b/l.so", "/a:b/l.so", "/a/$LIB/l.so"] {
            assert!(at(path).is_some(), "{path}");
        }
    }
}
