//! Protects what a C program sees of the interposed calls: those that are not about AF_XDP pass as if the library were not
//! there, and waits and descriptor numbers behave around an engine socket as around one of the kernel's.
//!
//! The C programs are in `tests/interpose/`. Each is compiled here and run with the library preloaded.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The shared library that cargo built along with this test.
fn library() -> PathBuf {
    let mut folder = std::env::current_exe().expect("this program has a path");
    folder.pop();
    let library = folder.join("libslipring.so");
    assert!(library.exists(), "cargo builds {} with the tests", library.display());
    library
}

/// A folder for the programs of this run.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interpose");
        fs::create_dir_all(&folder).expect("a folder in cargo's target directory");
        folder
    })
}

/// Compile `tests/interpose/NAME.c`.
fn program(name: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interpose");
    let to = folder().join(format!("{name}{}", flags.concat().replace(['-', '='], "_")));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    command.arg(sources.join(format!("{name}.c"))).args(libraries).arg("-o").arg(&to);
    let status = command.status().expect("a C compiler");
    assert!(status.success(), "{name}.c compiles");
    to
}

/// Run a program, with the library and the devices or without both.
fn run(program: &Path, devices: Option<&str>, preload: bool) -> Output {
    let mut command = Command::new(program);
    command.env_remove("SLIPRING_DEVICES").env_remove("LD_PRELOAD");
    if preload {
        command.env("LD_PRELOAD", library());
    }
    if let Some(devices) = devices {
        command.env("SLIPRING_DEVICES", devices);
    }
    let output = command.output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {}\n{out}{err}", program.display(), output.status);
    output
}

#[test]
fn calls_that_are_not_about_af_xdp_pass() {
    for flags in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2"]] {
        let program = program("passthrough", flags, &[]);
        run(&program, None, false);
        for devices in [None, Some("xdp0=loop")] {
            let output = run(&program, devices, true);
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// The library's own blocks go back to the allocator that they came from.
#[test]
fn a_program_may_have_an_allocator_of_its_own() {
    let output = run(&program("allocator", &["-O1"], &[]), Some("loop0=loop"), true);
    assert!(String::from_utf8_lossy(&output.stderr).contains("umem_area"), "{output:?}");
}

#[test]
fn c13_waits_tell_the_truth_sleep_wake_and_are_cancelled() {
    run(&program("waits", &["-O1"], &[]), Some("loop0=loop loop1=loop"), true);
}

#[test]
fn descriptor_numbers_are_the_programs() {
    run(&program("numbers", &["-O1"], &[]), Some("loop0=loop"), true);
}

#[test]
fn an_interface_of_ours_answers_like_one_of_the_kernels() {
    run(&program("interfaces", &["-O1"], &[]), Some("loop0=loop loop1=loop?queues=3"), true);
}

/// There the next definition is the system call itself. Without heap-guard: libc.a has free() in the same object as malloc().
#[cfg(not(feature = "heap-guard"))]
#[test]
fn a_fully_static_program_is_served() {
    let archive = library().with_extension("a");
    let archive = archive.to_str().expect("a path in UTF-8");
    for (name, devices) in
        [("passthrough", None), ("waits", Some("loop0=loop loop1=loop")), ("numbers", Some("loop0=loop"))]
    {
        run(&program(name, &["-static"], &[archive]), devices, false);
    }
}

/// Commands that move descriptors, fork, and wait for each other all the time.
#[test]
fn a_shell_works_under_the_library() {
    let script = r#"
        set -e
        f=$(mktemp)
        exec 5> "$f" 6< "$f"
        seq 1000 | while read -r n; do echo "$n"; done | sort -n | tail -1 >&5
        read -r last <&6
        [ "$last" = 1000 ]
        (sleep 0.1; echo late >&5) & wait
        read -r last <&6
        [ "$last" = late ]
        exec 5>&- 6<&-
        rm "$f"
        timeout 5 cat /dev/null
    "#;
    let mut command = Command::new("sh");
    let output = command.args(["-c", script]).env("LD_PRELOAD", library()).output().expect("a shell");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
