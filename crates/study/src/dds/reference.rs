// SPDX-License-Identifier: Apache-2.0
//! Medians of the paper, read off its plots.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// One case of the paper: its medians in ms by size in bytes.
pub struct Series {
    /// Name in the file.
    pub case: &'static str,
    /// Size and median.
    pub medians: Vec<(usize, f64)>,
}

const TEXT: &str = include_str!("../../reference/emsoft2016_medians.csv");

/// Returns the file, which the plots read too.
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/emsoft2016_medians.csv")
}

/// Returns all cases.
pub fn all() -> Result<Vec<Series>> {
    parse(TEXT)
}

/// Returns the median of a case at a size; `None` if the paper has none.
pub fn median(all: &[Series], case: &str, bytes: usize) -> Option<f64> {
    let series = all.iter().find(|it| it.case == case)?;
    series.medians.iter().find(|(size, _)| *size == bytes).map(|(_, median)| *median)
}

fn parse(text: &'static str) -> Result<Vec<Series>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let head = lines.next().context("reference/emsoft2016_medians.csv is empty")?;
    let sizes: Vec<usize> = head.split(',').skip(1).map(bytes).collect::<Result<_>>()?;
    lines.map(|line| series(line, &sizes)).collect()
}

fn series(line: &'static str, sizes: &[usize]) -> Result<Series> {
    let mut fields = line.split(',');
    let case = fields.next().context("a line without a case")?;
    let mut medians = Vec::new();
    for (field, &size) in fields.zip(sizes) {
        if !field.is_empty() {
            let median = field.parse().with_context(|| format!("'{field}' in '{line}'"))?;
            medians.push((size, median));
        }
    }
    Ok(Series { case, medians })
}

/// Parses a size: `64K` is 64 000 bytes in the paper's data.
fn bytes(text: &str) -> Result<usize> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number: usize = digits.parse().with_context(|| format!("size '{text}'"))?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_the_paper_are_found_by_case_and_size() {
        let all = all().unwrap();
        assert_eq!(median(&all, "1b_ros1_local", 1_000_000), Some(0.820));
        assert_eq!(median(&all, "1a_ros1_remote", 2_000_000), None);
        let sizes: Vec<usize> = all[1].medians.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, crate::dds::latency::SIZES);
    }
}
