// SPDX-License-Identifier: Apache-2.0
//! The columns of what the file plans. They are metrics only, because each assumption has a unit of
//! its own in the output of `status`.

use super::column::{Column, Columns, Value};
use crate::status::PlanReport;

type Plan = Column<PlanReport, ()>;

/// The columns of what the file plans.
pub const PLAN: Columns<PlanReport, ()> = Columns(&[
    Plan::new("1 while an assumption of the file fails", |plan| {
        Value::Flag(plan.now.failed_for_s.is_some())
    })
    .gauge(10, "tautline_plan_failed"),
    Plan::new("The value that the file expects", |plan| Value::Number(plan.now.expected))
        .gauge(20, "tautline_plan_expected"),
    Plan::new("The value measured", |plan| Value::if_known(plan.now.measured, Value::Number))
        .gauge(30, "tautline_plan_measured"),
]);
