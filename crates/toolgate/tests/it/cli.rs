//! Commands that need no running server, and their documentation.

mod code_blocks;
mod completions;
mod connect;
mod deployment;
mod docs;
mod doctor;
mod escapes;
mod help;
mod import;
mod init;
mod listings;
mod named_things;
mod policy_test;
mod running_gateway;
mod search;
mod take_over;
mod team_example;
mod tutorial;
mod tutorials;
