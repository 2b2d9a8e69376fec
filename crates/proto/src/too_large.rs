// SPDX-License-Identifier: Apache-2.0
//! The reason with which a node refuses messages that are larger than it allows. The sender of a message
//! reads the limit from the text of the reason.

const BEFORE_LIMIT: &str = " bytes is larger than the ";
const AFTER_LIMIT: &str = " bytes that '";
const END: &str = "' allows (limits.max_message)";

/// Returns the reason why the node `here` refuses a message of `found` bytes on a topic.
pub(crate) fn reason(topic: &str, found: usize, allowed: usize, here: &str) -> String {
    format!("{topic}: a message of {found}{BEFORE_LIMIT}{allowed}{AFTER_LIMIT}{here}{END}")
}

/// Returns the size of the largest message that a peer allows, in bytes; `None` if the peer gives
/// another reason.
pub fn allowed(reason: &str) -> Option<usize> {
    let (_, limit) = reason.strip_suffix(END)?.split_once(BEFORE_LIMIT)?;
    limit.split_once(AFTER_LIMIT)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_the_reason_and_from_no_other() {
        assert_eq!(allowed(&reason("/a", 7, 5, "base")), Some(5));
        let huge = reason("/a", 7, 5, "b").replace("the 5", "the 99999999999999999999999");
        for other in ["", "no right", END, &huge] {
            assert_eq!(allowed(other), None);
        }
    }
}
