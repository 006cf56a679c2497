//! Aligned columns on stdout.

/// Rows of text; columns are as wide as their widest cell.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table::default()
    }

    /// Align these columns to the right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Table {
        self.right = columns.to_vec();
        self
    }

    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each after `indent`, without blanks at their ends.
    pub(crate) fn lines(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::from(indent);
            for (c, cell) in row.iter().enumerate() {
                let gap = widths[c] - cell.chars().count();
                let (before, after) = if self.right.contains(&c) { (gap, 0) } else { (0, gap) };
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', after + 2));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    pub(crate) fn print(&self, indent: &str) {
        print!("{}", self.lines(indent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects that columns line up whatever is in them, and that short rows do not panic.
    #[test]
    fn columns_line_up() {
        let mut table = Table::new().right(&[1]);
        table.row(["name", "n"]);
        table.row(["é", "10000", "note"]);
        table.row(["x"]);
        assert_eq!(table.lines(" "), " name      n\n é     10000  note\n x\n");
    }
}
