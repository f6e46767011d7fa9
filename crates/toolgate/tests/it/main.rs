//! The real executable: what it says, how it ends, what it leaves behind.
//!
//! Every test runs `toolgate` in a folder of its own; most compare all of its output with a snapshot.

mod audit;
mod audit_faults;
mod check;
mod clocks;
mod docs;
mod door;
mod door_kills;
mod door_limits;
mod door_road;
mod door_wire;
mod faults;
mod faults_http;
mod help;
mod import;
mod init;
mod kit;
mod log;
mod managing;
mod mistakes;
mod newcomer;
mod openapi;
mod outage;
mod packages;
mod peers;
mod policy;
mod program;
mod promises;
mod registry;
mod results;
mod road;
mod scripts;
mod scripts_new;
mod scripts_serve;
mod sdk;
mod sdk_new;
mod secrets;
mod serve;
mod servers;
mod shop;
mod stdio;
mod telemetry;
mod toolbox;
mod trace;
mod trust;
