//! The execution log, traces and telemetry.

mod audit;
mod clocks;
mod faults;
mod records;
mod telemetry;
mod trace;
