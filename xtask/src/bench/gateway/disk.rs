//! The disk of the benchmark: the time of one append and `fdatasync`, to compare calls that wait for it.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use anyhow::Context;

use super::contender::BenchSetup;

/// Appends of one measurement.
const APPENDS: usize = 300;
/// Bytes of one append: about one record of a call.
const RECORD: [u8; 1024] = [b'x'; 1024];

/// Returns the shortest time of an append with `fdatasync`, in microseconds, in the folder of the gateways. Other work of
/// the machine makes it longer: on a busy one the median is one tick of the scheduler.
pub(super) fn shortest_sync_us(setup: &BenchSetup<'_>) -> anyhow::Result<f64> {
    let path = setup.folder.join("sync");
    let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut times = Vec::new();
    for _ in 0..APPENDS {
        let start = Instant::now();
        file.write_all(&RECORD).and_then(|()| file.sync_data()).context("cannot write to the disk")?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}
