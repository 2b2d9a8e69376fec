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

/// Replaces the named parts of a page and of its page of tables, `PAGE-tables`, if it has one; all
/// other parts stay as they are.
pub fn fill<N: AsRef<str>>(docs: &Path, page: &str, parts: &[(N, String)]) -> Result<()> {
    check(docs, page)?;
    let tables = path(docs, &format!("{page}-tables"));
    let on_tables =
        if tables.is_file() { std::fs::read_to_string(&tables)? } else { String::new() };
    let is_table = |part: &&(N, String)| on_tables.contains(&begin_mark(part.0.as_ref()));
    let (on_tables, on_page): (Vec<_>, Vec<_>) = parts.iter().partition(is_table);
    fill_file(&path(docs, page), &on_page)?;
    if on_tables.is_empty() { Ok(()) } else { fill_file(&tables, &on_tables) }
}

fn fill_file<N: AsRef<str>>(file: &Path, parts: &[&(N, String)]) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let text =
        parts.iter().try_fold(text, |text, (name, part)| replace(&text, name.as_ref(), part));
    let text = text.with_context(|| format!("in {}", file.display()))?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn begin_mark(name: &str) -> String {
    format!("<!-- begin {name} -->\n")
}

/// Replaces one part of a page's text.
pub fn replace(text: &str, name: &str, part: &str) -> Result<String> {
    let (begin, end) = (begin_mark(name), format!("<!-- end {name} -->"));
    let around = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) =
        around.with_context(|| format!("the page has no place for '{name}': {begin}... {end}"))?;
    ensure!(!part.contains("-->"), "the part '{name}' would end a comment");
    Ok(format!("{before}{begin}\n{part}\n{end}{after}"))
}

/// Keeps a report as the page's data, `measured/DATA`, with a line per key. Parts of the
/// data that the report does not have stay; `measured` says when each part was measured, and at which
/// revision.
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
    fn a_part_is_on_the_page_or_on_its_page_of_tables() {
        let docs = tempfile::tempdir().unwrap();
        std::fs::create_dir(docs.path().join("explanation")).unwrap();
        let file = |name| docs.path().join("explanation").join(name);
        let place = |name| format!("<!-- begin {name} -->\n<!-- end {name} -->\n");
        std::fs::write(file("study.md"), place("machine")).unwrap();
        std::fs::write(file("study-tables.md"), place("cost")).unwrap();
        let parts = [("machine", "M\n".to_owned()), ("cost", "C\n".to_owned())];
        fill(docs.path(), "study", &parts).unwrap();
        let [page, tables] =
            ["study.md", "study-tables.md"].map(|it| std::fs::read_to_string(file(it)).unwrap());
        assert_eq!((page.contains("M\n"), page.contains("C\n")), (true, false));
        assert_eq!((tables.contains("M\n"), tables.contains("C\n")), (false, true));
        assert!(fill(docs.path(), "study", &[("nowhere", String::new())]).is_err());
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
