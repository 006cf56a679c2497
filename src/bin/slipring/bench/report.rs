//! Runs by state, and how they are printed.

use std::path::{Path, PathBuf};

use super::{
    Setting,
    state::{State, median, pin},
};
use crate::{json::Json, table::Table};

/// What one line of the result is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub bench: &'static str,
    pub variant: String,
    pub threads: u64,
    /// Bytes of a frame; 0 where there are no frames.
    pub frame: u64,
    pub metric: &'static str,
    pub unit: &'static str,
}

/// Subjects, and how one run of all of them is done.
pub(crate) struct Measure<'a> {
    pub subjects: Vec<Subject>,
    /// Does one run and returns the figure of each subject.
    pub run: Box<dyn FnMut() -> Result<Vec<f64>, String> + 'a>,
    /// Indices of other measures that this one is compared with, subject by subject: their ratios are lines of their own.
    pub rivals: Vec<usize>,
}

impl<'a> Measure<'a> {
    /// One subject that is compared with nothing yet.
    pub(crate) fn one(subject: Subject, mut run: impl FnMut() -> Result<f64, String> + 'a) -> Measure<'a> {
        Measure::several(vec![subject], move || run().map(|figure| vec![figure]))
    }

    /// Several subjects of each run, compared with nothing yet.
    pub(crate) fn several(subjects: Vec<Subject>, run: impl FnMut() -> Result<Vec<f64>, String> + 'a) -> Measure<'a> {
        Measure { subjects, run: Box::new(run), rivals: Vec::new() }
    }

    /// Compared with these measures.
    pub(crate) fn against(self, rivals: Vec<usize>) -> Measure<'a> {
        Measure { rivals, ..self }
    }
}

/// Figures of one subject.
#[derive(Clone, Debug, Default)]
struct Samples {
    near: Vec<f64>,
    far: Vec<f64>,
    one_core: Vec<f64>,
}

impl Samples {
    fn of(&mut self, state: State) -> Option<&mut Vec<f64>> {
        match state {
            State::Near => Some(&mut self.near),
            State::Far => Some(&mut self.far),
            State::OneCore => Some(&mut self.one_core),
            State::Mixed => None,
        }
    }
}

/// Do every measure in turn, round after round, until each state has its runs or the time is over.
///
/// `crosses`: the runs use both processors, so their state counts. Otherwise they all are of one core.
pub(crate) fn gather(
    setting: &Setting<'_>,
    report: &mut Report,
    crosses: bool,
    mut measures: Vec<Measure<'_>>,
) -> Result<(), String> {
    if crosses && setting.processors.second.is_none() {
        for (measure, state) in measures.iter().flat_map(|m| [(m, State::Near), (m, State::Far)]) {
            for subject in &measure.subjects {
                report.line(subject, state, Vec::new());
            }
        }
        report.note("only one processor may be used, and this bench needs two");
        report.end(0);
        return Ok(());
    }
    let deadline = setting.deadline();
    // For each measure, then for each of its subjects; of ratios for each rival before that.
    let blank = |measure: &Measure<'_>| vec![Samples::default(); measure.subjects.len()];
    let mut samples: Vec<_> = measures.iter().map(blank).collect();
    let mut ratios: Vec<_> = measures.iter().map(|m| vec![blank(m); m.rivals.len()]).collect();
    let mut thrown_away = 0u64;
    let wanted: &[State] = if crosses { &[State::Near, State::Far] } else { &[State::OneCore] };
    let done = |samples: &mut [Vec<Samples>]| {
        let enough = |s: &mut Samples, state| s.of(state).is_some_and(|runs| runs.len() >= setting.runs);
        samples.iter_mut().flatten().all(|s| wanted.iter().all(|state| enough(s, *state)))
    };
    loop {
        let mut round = Vec::new();
        for (measure, samples) in measures.iter_mut().zip(&mut samples) {
            pin(setting.processors.first);
            let (state, figures) = match crosses {
                true => setting.processors.probed(&mut measure.run),
                false => (State::OneCore, (measure.run)()),
            };
            let figures = figures?;
            thrown_away += u64::from(state == State::Mixed);
            for (samples, figure) in samples.iter_mut().zip(&figures) {
                samples.of(state).into_iter().for_each(|runs| runs.push(*figure));
            }
            round.push((state, figures));
        }
        for (i, measure) in measures.iter().enumerate() {
            let (state, figures) = &round[i];
            for (rival, ratios) in measure.rivals.iter().zip(&mut ratios[i]) {
                let (rival_state, rivals) = &round[*rival];
                if state != rival_state {
                    continue;
                }
                for (ratios, (figure, rival)) in ratios.iter_mut().zip(figures.iter().zip(rivals)) {
                    ratios.of(*state).into_iter().for_each(|runs| runs.push(figure / rival));
                }
            }
        }
        if done(&mut samples) || std::time::Instant::now() >= deadline {
            break;
        }
    }
    for (i, measure) in measures.iter().enumerate() {
        for (at, subject) in measure.subjects.iter().enumerate() {
            for state in wanted {
                let take = |samples: &mut Samples| samples.of(*state).map(std::mem::take).unwrap_or_default();
                report.line(subject, *state, take(&mut samples[i][at]));
                for (rival, ratios) in measure.rivals.iter().zip(&mut ratios[i]) {
                    let variant = format!("{} / {}", subject.variant, measures[*rival].subjects[at].variant);
                    let subject = Subject { variant, metric: "ratio", unit: "x", ..subject.clone() };
                    report.line(&subject, *state, take(&mut ratios[at]));
                }
            }
        }
    }
    report.end(thrown_away);
    Ok(())
}

/// Prints results: a table a bench, or a JSON object a line.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    library: PathBuf,
    table: Table,
}

const COLUMNS: [&str; 10] = ["bench", "variant", "threads", "frame", "state", "median", "min", "max", "runs", "unit"];

impl Report {
    pub(crate) fn new(json: bool, library: &Path) -> Report {
        if !json {
            println!("library {}", library.display());
        }
        Report { json, library: library.to_owned(), table: Table::new() }
    }

    /// One subject in one state; without runs: a state that was not seen.
    pub(crate) fn line(&mut self, subject: &Subject, state: State, mut runs: Vec<f64>) {
        let [middle, least, most] = figures(&mut runs);
        if self.json {
            println!("{}", Json::Object(self.members(subject, state, [middle, least, most], runs.len())));
            return;
        }
        if self.table.is_empty() {
            self.table = Table::new().right(&[2, 3, 5, 6, 7, 8]);
            self.table.row(COLUMNS);
        }
        let figure = |x: f64| if x.is_finite() { format!("{x:.2}") } else { "-".to_owned() };
        let seen = if runs.is_empty() { "not seen".to_owned() } else { subject.unit.to_owned() };
        self.table.row([
            subject.bench.to_owned(),
            subject.variant.clone(),
            subject.threads.to_string(),
            subject.frame.to_string(),
            state.to_string(),
            figure(middle),
            figure(least),
            figure(most),
            runs.len().to_string(),
            seen,
        ]);
    }

    /// Whether the result is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A JSON object for one subject in one state, with `more` behind the members that all have.
    pub(crate) fn line_with(
        &self,
        subject: &Subject,
        state: State,
        mut runs: Vec<f64>,
        more: Vec<(&'static str, Json)>,
    ) {
        let mut members = self.members(subject, state, figures(&mut runs), runs.len());
        members.extend(more);
        println!("{}", Json::Object(members));
    }

    fn members(
        &self,
        subject: &Subject,
        state: State,
        [median, min, max]: [f64; 3],
        runs: usize,
    ) -> Vec<(&'static str, Json)> {
        vec![
            ("bench", Json::text(subject.bench)),
            ("variant", Json::text(&subject.variant)),
            ("threads", Json::Int(subject.threads)),
            ("frame", Json::Int(subject.frame)),
            ("metric", Json::text(subject.metric)),
            ("unit", Json::text(subject.unit)),
            ("median", Json::Real(median)),
            ("min", Json::Real(min)),
            ("max", Json::Real(max)),
            ("runs", Json::Int(runs as u64)),
            ("state", Json::text(state.name())),
            ("library", Json::text(self.library.display().to_string())),
        ]
    }

    /// Something that a reader of the table should know.
    pub(crate) fn note(&self, text: &str) {
        // Beside JSON it would break the lines.
        if self.json { eprintln!("slipring bench: {text}") } else { println!("{text}") }
    }

    /// The bench is over.
    pub(crate) fn end(&mut self, thrown_away: u64) {
        if !self.json {
            std::mem::take(&mut self.table).print("");
        }
        if thrown_away > 0 {
            self.note(&format!("{thrown_away} runs thrown away: the state changed while they ran"));
        }
        if let Some(load) = load().filter(|load| *load > QUIET) {
            self.note(&format!("load average {load:.1}: other work on this machine takes part in these figures"));
        }
    }
}

/// Median, least and most.
fn figures(runs: &mut [f64]) -> [f64; 3] {
    let middle = median(runs);
    [middle, runs.first().copied().unwrap_or(f64::NAN), runs.last().copied().unwrap_or(f64::NAN)]
}

/// Load average up to which nothing but a bench with its two threads need be running.
const QUIET: f64 = 2.5;

/// The load average of the last minute.
fn load() -> Option<f64> {
    let mut averages = [0.0; 1];
    // SAFETY: room for the one number that is asked for.
    let n = unsafe { libc::getloadavg(averages.as_mut_ptr(), 1) };
    (n == 1).then_some(averages[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the members that scripts rely on, and that an unseen state is told as one and not left out.
    #[test]
    fn a_json_line_has_every_member() {
        let subject =
            Subject { bench: "tx", variant: "null".into(), threads: 1, frame: 64, metric: "rate", unit: "Mpps" };
        let report = Report { json: true, library: "/l.so".into(), table: Table::new() };
        let line = Json::Object(report.members(&subject, State::Near, [2.5, 1.0, 3.0], 7)).to_string();
        assert_eq!(
            line,
            "{\"bench\":\"tx\",\"variant\":\"null\",\"threads\":1,\"frame\":64,\"metric\":\"rate\",\"unit\":\"Mpps\",\
             \"median\":2.5,\"min\":1,\"max\":3,\"runs\":7,\"state\":\"near\",\"library\":\"/l.so\"}"
        );
        let line = Json::Object(report.members(&subject, State::Far, [f64::NAN; 3], 0)).to_string();
        assert!(line.contains("\"median\":null") && line.contains("\"runs\":0"), "{line}");
    }

    /// Protects that a run during which the state changed counts for nothing.
    #[test]
    fn mixed_runs_are_in_no_state() {
        assert!(Samples::default().of(State::Mixed).is_none());
    }
}
