// SPDX-License-Identifier: Apache-2.0
//! The columns of a snapshot: what each value is, and where people and programs see it. The tables
//! of `status` and `top`, the metrics, and the diagnostics are generated from these rows.
//!
//! Each place orders the columns independently. The order numbers leave gaps for new columns.

mod column;
mod link;
mod peer;
mod plan;
mod radio;
mod team;
mod topic;

pub use column::{
    Cell, Column, Columns, Metric, PlacedColumns, ReportWithRates, Tone, Value,
    WIDE_TERMINAL_WIDTH, Width,
};
pub use link::LINKS;
pub use peer::PEERS;
pub use plan::PLAN;
pub use radio::RADIOS;
pub use team::TEAMS;
pub use topic::TOPICS;

#[cfg(test)]
mod tests {
    use super::column::Place;
    use super::*;
    use std::collections::BTreeSet;

    fn assert_distinct_orders<Report, Rates>(columns: &Columns<Report, Rates>) {
        let places: [Place<Report, Rates, ()>; 5] = [
            |column| Some((column.in_status?.0, ())),
            |column| Some((column.cell?.0, ())),
            |column| Some((column.metric?.0, ())),
            |column| Some((column.in_diagnostics?.0, ())),
            |column| Some((column.for_programs?.0, ())),
        ];
        for place in places {
            let orders: Vec<u16> = columns.0.iter().filter_map(|it| Some(place(it)?.0)).collect();
            let distinct: BTreeSet<u16> = orders.iter().copied().collect();
            assert_eq!(distinct.len(), orders.len(), "two columns have one place: {orders:?}");
        }
    }

    #[test]
    fn no_two_columns_have_the_same_place() {
        assert_distinct_orders(&LINKS);
        assert_distinct_orders(&PEERS);
        assert_distinct_orders(&PLAN);
        assert_distinct_orders(&RADIOS);
        assert_distinct_orders(&TEAMS);
        assert_distinct_orders(&TOPICS);
    }
}
