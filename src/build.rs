//! Link arguments of the shared library, the C half of the print callback, and the generated headers.

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-changed=src/abi/print.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libslipring.so.0");
    // The program's calls, and the worker thread, go through the library until the process ends: dlclose must not take it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new().file("src/abi/print.c").extra_warnings(true).compile("slipring_print");
    #[cfg(feature = "headers")]
    headers::generate();
}

/// The headers are committed, so a plain build needs none of this. With the feature `headers` the build fails when one is
/// not what its source gives, or writes it when SLIPRING_HEADERS=write.
#[cfg(feature = "headers")]
mod headers {
    use std::{fs, path::Path};

    struct Header {
        path: &'static str,
        config: &'static str,
        sources: &'static [&'static str],
    }

    const HEADERS: [Header; 2] = [
        Header {
            path: "include/xdp/xsk_gen.h",
            config: "include/xdp/cbindgen.toml",
            sources: &["src/abi/types.rs", "src/abi/xsk.rs"],
        },
        Header { path: "include/slipring.h", config: "include/cbindgen.toml", sources: &["src/abi/ext.rs"] },
    ];

    pub(super) fn generate() {
        println!("cargo::rerun-if-env-changed=SLIPRING_HEADERS");
        let write = std::env::var("SLIPRING_HEADERS").is_ok_and(|v| v == "write");
        for header in &HEADERS {
            for file in header.sources.iter().chain([&header.path, &header.config]) {
                println!("cargo::rerun-if-changed={file}");
            }
            let text = for_c(&text(header)).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
            if fs::read_to_string(header.path).is_ok_and(|old| old == text) {
                continue;
            }
            if write {
                fs::write(header.path, text).expect("the package's own folder is writable");
            } else {
                println!("cargo::error={} is not what its source gives: run `make headers`", header.path);
            }
        }
    }

    fn text(header: &Header) -> String {
        let config = cbindgen::Config::from_file(header.config).expect("a committed file");
        let mut builder = cbindgen::Builder::new().with_config(config);
        for source in header.sources {
            builder = builder.with_src(Path::new(source));
        }
        let mut text = Vec::new();
        builder.generate().expect("sources that cbindgen understands").write(&mut text);
        String::from_utf8(text).expect("cbindgen writes UTF-8")
    }

    /// The text in the dialect that the handwritten headers keep to: C89's comments, tabs, documentation without
    /// rustdoc's marks and without the "Safety" chapters, which are for Rust callers.
    fn for_c(text: &str) -> String {
        let mut out = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let indent = tabs(&line[..line.len() - line.trim_start().len()]);
            let line = line.split("  //").next().unwrap_or(line).trim_end_matches(" // __cplusplus");
            if line.trim() != "/**" {
                out += &format!("{indent}{}\n", line.trim_start());
                continue;
            }
            let comment: Vec<String> = lines
                .by_ref()
                .map(|l| {
                    l.trim_start().trim_start_matches('*').trim().replace("[`", "").replace("`]", "").replace('`', "")
                })
                .take_while(|l| l != "/")
                .collect();
            let end = comment.iter().position(|l| l == "# Safety").unwrap_or(comment.len());
            let comment = comment[..end].join("\n");
            match comment.trim_end() {
                one if !one.contains('\n') => out += &format!("{indent}/* {one} */\n"),
                many => {
                    out += &format!("{indent}/*\n");
                    for line in many.lines() {
                        out += format!("{indent} * {line}").trim_end();
                        out.push('\n');
                    }
                    out += &format!("{indent} */\n");
                }
            }
        }
        out
    }

    fn tabs(spaces: &str) -> String {
        format!("{}{}", "\t".repeat(spaces.len() / 8), " ".repeat(spaces.len() % 8))
    }
}
