//! Just enough JSON to print results.

use std::fmt;

/// A value. Objects keep the order in which they were built.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(u64),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Json {
        Json::Text(text.into())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(b) => write!(f, "{b}"),
            Json::Int(n) => write!(f, "{n}"),
            // JSON has no word for these.
            Json::Real(x) if !x.is_finite() => f.write_str("null"),
            Json::Real(x) => write!(f, "{x}"),
            Json::Text(text) => escape(f, text),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    escape(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the shape that scripts parse: escapes, and no word that JSON does not have.
    #[test]
    fn values_print_as_json() {
        let value = Json::Object(vec![
            ("a", Json::List(vec![Json::Int(1), Json::Null, Json::Bool(true)])),
            ("b\"", Json::text("x\n\\\u{1b}é")),
            ("c", Json::Real(1.5)),
            ("d", Json::Real(f64::NAN)),
        ]);
        assert_eq!(value.to_string(), r#"{"a":[1,null,true],"b\"":"x\u000a\\\u001bé","c":1.5,"d":null}"#);
    }
}
