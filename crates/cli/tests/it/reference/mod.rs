// SPDX-License-Identifier: Apache-2.0
//! The pages of docs/reference that are generated from tables of the code.

pub mod audit;
pub mod limits;
pub mod reasons;
pub mod schema;
