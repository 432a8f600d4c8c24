//! An answer as a flat list of fields that two brokers can be compared by.
//!
//! The codec library's structures are read from their `Debug` text, which names every field of
//! every API without a line of code per API. What no two brokers share is replaced by a word:
//! addresses, ids, epochs, and times that are close to now.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::peer::MADE_UP_ID;

/// Fields by path: `topics[name="t"].error_code`.
pub type Fields = BTreeMap<String, String>;

enum Tree {
    Atom(String),
    List(Vec<Tree>),
    Struct(Vec<(String, Tree)>),
}

/// The fields of an answer in `Debug` text, at the time `now_ms`. Ids in `own_ids` were made up by
/// the script and are kept as they are.
pub fn of_debug(text: &str, now_ms: i64, own_ids: &[Uuid]) -> Fields {
    let mut parser = Parser { rest: text };
    let tree = parser.value();
    assert_eq!(parser.rest, "", "all of it is understood");
    let mut fields = Fields::new();
    flatten("", "", &tree, &Words { now_ms, own_ids }, &mut fields);
    fields
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self) -> Tree {
        match self.peek() {
            '"' => Tree::Atom(self.quoted()),
            '[' => Tree::List(self.values('[', ']')),
            '{' => {
                // A map: only the unknown tagged fields are one.
                self.take('{');
                let mut entries = Vec::new();
                while !self.taken('}') {
                    let name = self.word();
                    self.take(':');
                    entries.push((format!("tag {name}"), self.value()));
                    self.taken(',');
                }
                Tree::Struct(entries)
            }
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Tree {
        let word = self.word();
        if word == "b" && self.peek() == '"' {
            return Tree::Atom(format!("b{}", self.quoted()));
        }
        match self.peek() {
            '{' => {
                self.take('{');
                let mut fields = Vec::new();
                while !self.taken('}') {
                    let name = self.word();
                    self.take(':');
                    fields.push((name, self.value()));
                    self.taken(',');
                }
                Tree::Struct(fields)
            }
            '(' => {
                let mut values = self.values('(', ')');
                assert_eq!(values.len(), 1, "{word} wraps one value");
                values.remove(0)
            }
            _ => Tree::Atom(word),
        }
    }

    fn values(&mut self, open: char, close: char) -> Vec<Tree> {
        self.take(open);
        let mut values = Vec::new();
        while !self.taken(close) {
            values.push(self.value());
            self.taken(',');
        }
        values
    }

    fn quoted(&mut self) -> String {
        let mut escaped = false;
        let end = self.rest[1..].find(|letter| match (letter, escaped) {
            ('"', false) => true,
            ('\\', false) => {
                escaped = true;
                false
            }
            _ => {
                escaped = false;
                false
            }
        });
        let (text, rest) = self.rest.split_at(end.expect("a closing quote") + 2);
        self.rest = rest;
        text.to_owned()
    }

    fn word(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && !"_-.".contains(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        assert!(!word.is_empty(), "a word at {rest:.40}");
        self.rest = rest;
        word.to_owned()
    }

    fn peek(&mut self) -> char {
        self.rest = self.rest.trim_start();
        self.rest.chars().next().unwrap_or(' ')
    }

    fn taken(&mut self, expected: char) -> bool {
        let there = self.peek() == expected;
        if there {
            self.rest = &self.rest[expected.len_utf8()..];
        }
        there
    }

    fn take(&mut self, expected: char) {
        assert!(self.taken(expected), "{expected} at {:.40}", self.rest);
    }
}

struct Words<'a> {
    now_ms: i64,
    own_ids: &'a [Uuid],
}

fn flatten(path: &str, name: &str, tree: &Tree, words: &Words<'_>, fields: &mut Fields) {
    match tree {
        Tree::Atom(text) => {
            if let Some(text) = words.of(name, text) {
                fields.insert(path.to_owned(), text);
            }
        }
        Tree::Struct(entries) => {
            for (name, value) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, name, value, words, fields);
            }
        }
        Tree::List(items) => {
            fields.insert(format!("{path}.length"), items.len().to_string());
            for (place, item) in items.iter().enumerate() {
                let key = key_of(item).unwrap_or_else(|| place.to_string());
                let mut at = format!("{path}[{key}]");
                while fields.range(at.clone()..).next().is_some_and(|(p, _)| p.starts_with(&at)) {
                    at.push_str(" again");
                }
                flatten(&at, name, item, words, fields);
            }
        }
    }
}

/// What names an element of a list, wherever it stands: Kafka answers in the order of hash maps.
fn key_of(item: &Tree) -> Option<String> {
    let Tree::Struct(fields) = item else { return None };
    let id = fields.iter().find_map(|(name, value)| match value {
        Tree::Atom(text) if name == "topic_id" => text.parse::<Uuid>().ok(),
        _ => None,
    });
    let id = id.filter(|id| !id.is_nil());
    let of = |wanted: &[&str]| {
        let mut found = fields.iter().filter(|(name, _)| wanted.contains(&&**name));
        found.find_map(|(_, value)| match value {
            Tree::Atom(text) if text == "\"\"" && id.is_some() => match id {
                Some(MADE_UP_ID) => Some("made up".to_owned()),
                _ => Some("by id".to_owned()),
            },
            Tree::Atom(text) if text != "None" => Some(text.clone()),
            _ => None,
        })
    };
    of(&["name", "topic", "resource_name", "key", "config_name", "topic_name", "user", "feature"])
        .or_else(|| of(&["entity_type", "mechanism", "group_id", "member_id"]))
        .or_else(|| entity_of(fields))
        .or_else(|| {
            of(&["index", "partition", "partition_index", "partition_id", "api_key", "batch_index"])
        })
}

/// Whom a client quota is for.
fn entity_of(fields: &[(String, Tree)]) -> Option<String> {
    let (_, Tree::List(parts)) = fields.iter().find(|(name, _)| name == "entity")? else {
        return None;
    };
    let atoms = |part: &Tree| {
        let Tree::Struct(fields) = part else { return String::new() };
        let texts = fields.iter().filter_map(|(_, value)| match value {
            Tree::Atom(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("=")
    };
    let mut parts: Vec<String> = parts.iter().map(atoms).collect();
    parts.sort_unstable();
    Some(parts.join(" and "))
}

impl Words<'_> {
    /// The text of a field to compare by; none for a field that is never compared.
    fn of(&self, name: &str, text: &str) -> Option<String> {
        let shown = match name {
            "throttle_time_ms" => return None,
            "host" if text != "\"\"" => "a host".to_owned(),
            "cluster_id" if text != "None" => "a cluster".to_owned(),
            "port"
            | "node_id"
            | "broker_id"
            | "leader_id"
            | "controller_id"
            | "leader_epoch"
            | "replica_nodes"
            | "isr_nodes"
            | "producer_id"
            | "replica_id"
            | "finalized_features_epoch"
                if !text.starts_with('-') =>
            {
                format!("a {}", name.replace('_', " "))
            }
            "session_id" if text != "0" => "a session".to_owned(),
            "topic_id" => match text.parse::<Uuid>() {
                Ok(id) if !id.is_nil() && !self.own_ids.contains(&id) => "an id".to_owned(),
                _ => text.to_owned(),
            },
            _ => self.clockless(text),
        };
        Some(shown)
    }

    /// Times within a day of now become a word, alone or in a sentence.
    fn clockless(&self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let digits = &rest[start..];
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let near = (digits[..end].parse::<i64>())
                .is_ok_and(|time| time.abs_diff(self.now_ms) < 86_400_000);
            shown += &rest[..start];
            shown += if near { "now" } else { &digits[..end] };
            rest = &digits[end..];
        }
        shown + rest
    }
}
