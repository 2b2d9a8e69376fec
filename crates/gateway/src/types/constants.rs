// SPDX-License-Identifier: Apache-2.0
//! Constants of a type in the notation of the other ROS. Pure.
//!
//! ROS 1 (genmsg) writes `bool X=True`, decimal numbers, signed bytes, and text without quotes up
//! to the end of the line. ROS 2 (rosidl) writes `bool X=true`, also `0x1f`, unsigned bytes, and
//! text that may be in quotes and ends at a `#`. Constants are in no message, and ROS 2's hash does
//! not cover them. Thus a constant that the other ROS cannot express is left out, so that its tools
//! can read the rest.

use super::definition::Dialect;

/// The number of values of a byte, which is signed in ROS 1.
const BYTE_VALUES: i128 = 1 << 8;

/// A constant (`uint8 DEBUG=1`) of the other ROS in the notation of `to`; `None` if that ROS cannot
/// express it.
pub(super) fn converted_constant(constant: &str, to: Dialect) -> Option<String> {
    let (written, rest) = constant.split_once(' ')?;
    let (name, value) = rest.split_once('=')?;
    let element = written.split("<=").next().unwrap_or_default();
    let (written, value) = match (element, to) {
        ("string" | "wstring", Dialect::Ros1) => ("string", unquoted_text(value)?),
        ("string", Dialect::Ros2) => ("string", quoted_text(value)?),
        ("bool", _) => ("bool", converted_bool(value, to)?),
        ("float32" | "float64", _) => (element, value.to_owned()),
        _ => (element, whole_number(element, value, to)?),
    };
    Some(format!("{written} {name}={value}"))
}

/// The text of a value without quotes. `None`: it starts or ends with white space, which ROS 1 strips.
fn unquoted_text(value: &str) -> Option<String> {
    let text = ['"', '\''].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(inner.replace(&format!("\\{quote}"), &quote.to_string()))
    });
    let text = text.unwrap_or_else(|| value.to_owned());
    (text.trim() == text).then_some(text)
}

/// The text of a value in quotes, for ROS 2, which allows no `#` in a text.
fn quoted_text(value: &str) -> Option<String> {
    (!value.contains('#')).then(|| format!("\"{}\"", value.replace('"', "\\\"")))
}

fn converted_bool(value: &str, to: Dialect) -> Option<String> {
    // The same text keeps ROS 1's md5.
    if matches!(value, "0" | "1") {
        return Some(value.to_owned());
    }
    let is_true = match value.to_ascii_lowercase().as_str() {
        "true" => true,
        "false" => false,
        // A number in ROS 1.
        _ => integer(value)? != 0,
    };
    let word = match (is_true, to) {
        (true, Dialect::Ros1) => "True",
        (false, Dialect::Ros1) => "False",
        (true, Dialect::Ros2) => "true",
        (false, Dialect::Ros2) => "false",
    };
    Some(word.to_owned())
}

fn whole_number(element: &str, value: &str, to: Dialect) -> Option<String> {
    let number = integer(value)?;
    let in_other_range = match (element, to) {
        ("byte", Dialect::Ros1) if number >= BYTE_VALUES / 2 => number - BYTE_VALUES,
        ("byte", Dialect::Ros2) if number < 0 => number + BYTE_VALUES,
        _ => number,
    };
    let is_decimal = value.parse() == Ok(in_other_range);
    Some(if is_decimal { value.to_owned() } else { in_other_range.to_string() })
}

/// A number in the notation of Python: `-5`, `0x1f`, `0b11`, `0o17`, `1_000`.
fn integer(value: &str) -> Option<i128> {
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    };
    let digits = digits.replace('_', "").to_ascii_lowercase();
    let radixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let found = radixes.iter().find_map(|(mark, radix)| Some((digits.strip_prefix(mark)?, *radix)));
    let (digits, radix) = found.unwrap_or((&digits, 10));
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| i128::from_str_radix(digits, radix).ok()).flatten().map(|number| sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_written_in_the_notation_of_the_other_ros() {
        for (of_ros2, in_ros1) in [
            ("bool X=true", Some("bool X=True")),
            ("bool X=FALSE", Some("bool X=False")),
            ("bool X=1", Some("bool X=1")),
            ("bool X=maybe", None),
            ("int32 X=-5", Some("int32 X=-5")),
            ("int32 X=0x1F", Some("int32 X=31")),
            ("uint8 X=1_0", Some("uint8 X=10")),
            ("uint8 X=abc", None),
            ("uint8 X=0x", None),
            ("byte X=200", Some("byte X=-56")),
            ("char X=200", Some("char X=200")),
            ("float64 X=0.5", Some("float64 X=0.5")),
            ("string X=\"it's # \\\"so\\\"\"", Some("string X=it's # \"so\"")),
            ("string X='a=b'", Some("string X=a=b")),
            ("string<=5 X=plain", Some("string X=plain")),
            ("wstring X=\"\u{e9}\"", Some("string X=\u{e9}")),
            ("string X=\" kept \"", None),
            ("string X=\"", Some("string X=\"")),
        ] {
            assert_eq!(converted_constant(of_ros2, Dialect::Ros1).as_deref(), in_ros1, "{of_ros2}");
        }
        for (of_ros1, in_ros2) in [
            ("bool X=True", Some("bool X=true")),
            ("bool X=2", Some("bool X=true")),
            ("byte X=-1", Some("byte X=255")),
            ("string X=say \"a\"", Some("string X=\"say \\\"a\\\"\"")),
            ("string X=a # b", None),
            ("string X=", Some("string X=\"\"")),
        ] {
            assert_eq!(converted_constant(of_ros1, Dialect::Ros2).as_deref(), in_ros2, "{of_ros1}");
        }
    }
}
