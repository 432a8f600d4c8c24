//! Where Ringlog's answers differ from Apache Kafka's on purpose, or for now, and why.

/// One expected difference. `case` and `field` may contain `*` for any text.
pub struct Difference {
    /// Case and version, as the script names it.
    pub case: &'static str,
    /// Path of the field in the answer.
    pub field: &'static str,
    /// Why it is so.
    pub reason: &'static str,
}

impl Difference {
    /// Whether this row explains a difference.
    pub fn covers(&self, case: &str, field: &str) -> bool {
        matches(self.case, case) && matches(self.field, field)
    }
}

const fn row(case: &'static str, field: &'static str, reason: &'static str) -> Difference {
    Difference { case, field, reason }
}

/// All of them.
pub const EXPECTED: &[Difference] = &[];

fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    (0..=rest.len())
        .filter(|&start| rest.is_char_boundary(start))
        .any(|start| matches(after, &rest[start..]))
}

#[test]
fn stars_stand_for_any_text() {
    assert!(matches("a*c", "abbc") && matches("*", "") && matches("a", "a"));
    assert!(matches("*b*", "abc") && !matches("a*c", "abd") && !matches("a", "ab"));
}
