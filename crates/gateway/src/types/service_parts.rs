// SPDX-License-Identifier: Apache-2.0
//! Request and response of a service in its definition.

use super::definition::{
    DIVIDER, Dialect, Schema, check_size, is_divider, is_separator, short_name,
};

/// The schemas of request and response. The types after the response are for both.
pub(super) fn request_and_response(
    type_name: &str,
    definition: &str,
    dialect: Dialect,
) -> Result<[Schema; 2], String> {
    let name = short_name(type_name);
    check_size(definition).map_err(|error| format!("{name}: {error}"))?;
    let lines: Vec<&str> = definition.lines().collect();
    let bar = lines.iter().position(|line| is_divider(line));
    let missing = || format!("{name}: no line '{DIVIDER}' between request and response");
    let bar = bar.ok_or_else(missing)?;
    let (request, rest) = (&lines[..bar], &lines[bar + 1..]);
    let first = rest.iter().position(|line| is_separator(line));
    let (response, shared) = rest.split_at(first.unwrap_or(rest.len()));
    // genmsg ignores further such lines.
    let response = response.iter().filter(|line| !is_divider(line)).copied();
    let response: Vec<&str> = response.chain(shared.iter().copied()).collect();
    let request = [request, shared].concat().join("\n");
    let parse = |part: &str, text: &str| {
        Schema::parse(&format!("{name}_{part}"), text, dialect).map_err(|error| error.to_string())
    };
    Ok([parse("Request", &request)?, parse("Response", &response.join("\n"))?])
}
