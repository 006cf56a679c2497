//! The C programs of `benches/yardsticks`, which do by hand what the library does.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::state::Processors;

/// Where they are: where the user says, else in `build/bench` of the tree in which this program was built.
pub(super) fn directory(given: Option<&Path>) -> Option<PathBuf> {
    let near = || {
        let exe = env::current_exe().ok()?;
        let trees = exe.ancestors().skip(1).take(4);
        trees.map(|dir| dir.join("build/bench")).find(|dir| dir.join("wire").is_file())
    };
    given.map(Path::to_owned).or_else(near)
}

/// Run a yardstick that prints text.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{shown}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One run of the wire by hand: million frames a second.
pub(super) fn wire(
    program: &Path,
    copies: &str,
    frame: u32,
    time: Duration,
    processors: Processors,
) -> Result<f64, String> {
    let second = processors.second.ok_or("two processors are needed")?;
    let mut command = Command::new(program);
    command.arg(copies).arg(frame.to_string()).arg(time.as_secs_f64().to_string());
    command.arg(processors.first.to_string()).arg(second.to_string());
    let text = output(&mut command)?;
    numbers(program, &text, 1).map(|figures| figures[0])
}

/// One run of round trips by hand: microseconds that 50, 99 and 99.9 of a hundred do not exceed.
pub(super) fn round_trip(
    program: &Path,
    frame: u32,
    time: Duration,
    processors: Processors,
) -> Result<Vec<f64>, String> {
    let second = processors.second.ok_or("two processors are needed")?;
    let mut command = Command::new(program);
    command.arg(frame.to_string()).arg(time.as_secs_f64().to_string());
    command.arg(processors.first.to_string()).arg(second.to_string());
    let text = output(&mut command)?;
    numbers(program, &text, 3)
}

/// The `n` numbers that a yardstick prints.
fn numbers(program: &Path, text: &str, n: usize) -> Result<Vec<f64>, String> {
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if figures.len() == n { Ok(figures) } else { Err(format!("{}: unexpected output {text:?}", program.display())) }
}
