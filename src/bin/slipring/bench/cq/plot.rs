//! The results as a picture (SVG): for each state and number of threads a row a variant, with its rate as a bar and the
//! distributions of reserve and submit as strips whose cells are the darker the more calls took so long.

use std::fmt::Write as _;

use super::summary::Summary;

/// Rows of one state and one number of threads.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    pub title: String,
    /// Name and runs; a variant without a run is left out by the caller.
    pub rows: Vec<(String, &'a Summary)>,
}

const ROW: usize = 18;
const NAME_AT: usize = 10;
const RATE_AT: usize = 190;
const RATE_WIDTH: usize = 150;
const STRIP_AT: [usize; 2] = [410, 730];
const CELL: usize = 11;
/// The strips go from 1 ns to 2^27 ns, an eighth of a second; what took longer is in the last cell.
const CELLS: usize = 27;
const WIDTH: usize = STRIP_AT[1] + CELLS * CELL + 20;
/// The whole of a strip is of this colour; a part that is a hundred-millionth of the calls is all but white.
const DECADES: f64 = 8.0;

/// The document.
pub(super) fn svg(heading: &str, panels: &[Panel<'_>]) -> String {
    let height = 60 + panels.iter().map(|panel| (panel.rows.len() + 3) * ROW).sum::<usize>();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, NAME_AT, 20, heading);
    text(
        &mut out,
        NAME_AT,
        40,
        "strips: how long calls took; the darker a cell the more of them, by orders of magnitude",
    );
    let mut y = 50;
    for panel in panels {
        y = draw(&mut out, panel, y);
    }
    out.push_str("</svg>\n");
    out
}

/// Draw a panel from `y` down; returns where it ends.
fn draw(out: &mut String, panel: &Panel<'_>, mut y: usize) -> usize {
    let most = panel.rows.iter().map(|(_, summary)| summary.rate()).fold(f64::MIN_POSITIVE, f64::max);
    y += ROW;
    text(out, NAME_AT, y, &panel.title);
    if panel.rows.is_empty() {
        return y + ROW;
    }
    text(out, RATE_AT, y, "M/s");
    for (at, name) in STRIP_AT.iter().zip(["reserve", "submit"]) {
        text(out, *at, y, name);
        for (bucket, label) in [(6, "64 ns"), (10, "1 us"), (20, "1 ms")] {
            text(out, at + bucket * CELL, y, label);
        }
    }
    for (name, summary) in &panel.rows {
        y += ROW;
        text(out, NAME_AT, y, name);
        let width = summary.rate() / most * RATE_WIDTH as f64;
        rect(out, RATE_AT, y, width, "#4a7ebb", 1.0);
        text(out, RATE_AT + RATE_WIDTH + 5, y, &format!("{:.2}", summary.rate()));
        for (at, step) in STRIP_AT.iter().zip([&summary.reserve, &summary.submit]) {
            for (bucket, share) in shares(&step.all.buckets()).iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let shade = (1.0 + share.log10() / DECADES).max(0.0).powi(2).max(0.05);
                rect(out, at + bucket * CELL, y, CELL as f64, "#7a2e2e", shade);
            }
        }
    }
    y + 2 * ROW
}

/// The part of the calls in each cell.
fn shares(buckets: &[u64]) -> [f64; CELLS] {
    let mut shares = [0.0; CELLS];
    let all: u64 = buckets.iter().sum();
    for (bucket, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        shares[bucket.min(CELLS - 1)] += *count as f64 / all as f64;
    }
    shares
}

fn text(out: &mut String, x: usize, y: usize, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\">{what}</text>");
}

/// A rectangle on the line of text at `y`.
fn rect(out: &mut String, x: usize, y: usize, width: f64, colour: &str, opacity: f64) {
    let (y, height) = (y - ROW + 6, ROW - 4);
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\" fill-opacity=\"{opacity:.2}\"/>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects that every call is in the strip once, also those that took longer than it shows.
    #[test]
    fn a_strip_shows_all_calls() {
        let mut buckets = vec![0; 40];
        (buckets[5], buckets[26], buckets[39]) = (6, 1, 1);
        let shares = shares(&buckets);
        assert_eq!((shares[5], shares[26]), (0.75, 0.25));
        assert_eq!(shares.iter().sum::<f64>(), 1.0);
    }

    /// Protects a document that a reader can open: all elements closed, text escaped, no figure that is none.
    #[test]
    fn a_picture_is_well_formed() {
        let empty = Summary::new();
        let panel = Panel { title: "2 threads, near".into(), rows: vec![("a<b".into(), &empty)] };
        let svg = svg("x & y", &[panel]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a&lt;b") && svg.contains("x &amp; y"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
