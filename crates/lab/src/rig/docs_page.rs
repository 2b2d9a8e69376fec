// SPDX-License-Identifier: Apache-2.0
//! Generated parts of the pages of docs/explanation, each between `<!-- begin NAME -->` and
//! `<!-- end NAME -->`.

use super::processes::{read_packed, write_packed};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

fn path(docs: &Path, page: &str) -> PathBuf {
    docs.join("explanation").join(format!("{page}.md"))
}

/// Fails if `docs` has no page of that name.
pub fn check(docs: &Path, page: &str) -> Result<()> {
    let file = path(docs, page);
    ensure!(file.is_file(), "--docs {}: there is no page {}", docs.display(), file.display());
    Ok(())
}

/// Replaces the named parts of a page; all others stay as they are.
pub fn fill<N: AsRef<str>>(docs: &Path, page: &str, parts: &[(N, String)]) -> Result<()> {
    check(docs, page)?;
    let file = path(docs, page);
    let text = std::fs::read_to_string(&file)?;
    let text =
        parts.iter().try_fold(text, |text, (name, part)| replace(&text, name.as_ref(), part));
    let text = text.with_context(|| format!("in {}", file.display()))?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Replaces one part of a page's text.
pub fn replace(text: &str, name: &str, part: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let around = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) =
        around.with_context(|| format!("the page has no place for '{name}': {begin}... {end}"))?;
    ensure!(!part.contains("-->"), "the part '{name}' would end a comment");
    Ok(format!("{before}{begin}\n{part}\n{end}{after}"))
}

/// Keeps a report as the page's data, `measured/DATA`, with a line per key. The data's parts that
/// the report does not have stay; `measured` says when each part was, and with which revision.
pub fn keep(docs: &Path, data: &str, report: &Path, parts: &[&str]) -> Result<()> {
    let data = docs.join("measured").join(data);
    let new = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let old = if data.is_file() { Some(read_packed(&data)?) } else { None };
    let merged = merge(old.as_deref(), new, parts)?;
    let lines: Vec<String> = merged
        .iter()
        .map(|(key, value)| format!("{}: {value}", Value::from(key.as_str())))
        .collect();
    write_packed(&data, &format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn merge(
    old: Option<&str>,
    mut new: Map<String, Value>,
    parts: &[&str],
) -> Result<Map<String, Value>> {
    let mut dates = Map::new();
    for part in parts.iter().filter(|part| new.contains_key(**part)) {
        let when = json!({ "date": new["date"], "revision": new["revision"] });
        dates.insert((*part).into(), when);
    }
    let old: Value = old.map(serde_json::from_str).transpose()?.unwrap_or_default();
    for part in parts.iter().filter(|part| old.get(part).is_some()) {
        if !new.contains_key(*part) {
            new.insert((*part).into(), old[*part].clone());
            dates.insert((*part).into(), old["measured"][*part].clone());
        }
    }
    new.insert("measured".into(), dates.into());
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_not_measured_stay_in_the_data() {
        let new = r#"{"date": "b", "revision": "r", "tasks": [2]}"#;
        let old =
            r#"{"date": "a", "tasks": [1], "loss": [1], "measured": {"tasks": "a", "loss": "a"}}"#;
        let merged =
            merge(Some(old), serde_json::from_str(new).unwrap(), &["tasks", "loss"]).unwrap();
        assert_eq!((&merged["tasks"], &merged["loss"]), (&[2].into(), &[1].into()));
        let tasks = json!({"date": "b", "revision": "r"});
        assert_eq!(merged["measured"], json!({"tasks": tasks, "loss": "a"}));
    }

    #[test]
    fn a_table_replaces_what_is_between_its_marks() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let new = replace(page, "x", "| n |\n").unwrap();
        assert_eq!(new, "a\n<!-- begin x -->\n\n| n |\n\n<!-- end x -->\nb\n");
        assert_eq!(replace(&new, "x", "| n |\n").unwrap(), new);
        let error = replace(page, "y", "").unwrap_err().to_string();
        assert!(error.contains("no place for 'y'"), "{error}");
    }
}
