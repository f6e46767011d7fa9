//! The chart of the measurements: CPU time per call and calls per second, for each result size.

use std::fmt::Write;

use super::Measurement;

/// Size of one panel, and the space around it.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const GAP: f64 = 60.0;

const COLOURS: [(&str, &str); 9] = [
    ("direct", "#9aa5b1"),
    ("nginx", "#3d8b5f"),
    ("plain", "#8cc2a3"),
    ("toolgate", "#2f5fd0"),
    ("log 64KiB", "#8fb0f5"),
    ("log 4KiB", "#c3d5fb"),
    ("fastmcp", "#d08a2f"),
    ("agentgw", "#b0457b"),
    ("rmcp", "#6b4fa0"),
];

/// A column of panels: its title, and the value of a measurement.
type Measure = (&'static str, fn(&Measurement) -> Option<f64>);

const MEASURES: [Measure; 2] = [
    ("CPU time per call, µs (less is better)", |measurement| measurement.cpu_us_per_call),
    ("calls per second (more is better)", |measurement| Some(measurement.calls_per_second)),
];

pub(super) fn svg(measurements: &[Measurement]) -> String {
    let mut tools: Vec<&str> = measurements.iter().map(|measurement| measurement.case.name).collect();
    tools.dedup();
    let (width, height) = (LEFT + 2.0 * (WIDTH + GAP), TOP + tools.len() as f64 * (HEIGHT + GAP));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut x = LEFT;
    for (name, colour) in
        COLOURS.iter().filter(|(name, _)| measurements.iter().any(|it| it.contender == *name))
    {
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"22\">{name}</text>", x + 17.0);
        x += 110.0;
    }
    for (row, tool) in tools.iter().enumerate() {
        for (column, measure) in MEASURES.iter().enumerate() {
            let corner = (LEFT + column as f64 * (WIDTH + GAP), TOP + row as f64 * (HEIGHT + GAP));
            let measurements: Vec<_> =
                measurements.iter().filter(|measurement| measurement.case.name == *tool).collect();
            panel(&mut svg, corner, tool, measure, &measurements);
        }
    }
    svg + "</svg>\n"
}

/// Draws one panel: a group of bars for each number of connections. The highest bar fills the panel.
fn panel(
    svg: &mut String,
    (x, y): (f64, f64),
    tool: &str,
    (title, number): &Measure,
    measurements: &[&Measurement],
) {
    let highest = measurements.iter().filter_map(|measurement| number(measurement)).fold(0.0, f64::max);
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{tool}: {title}</text>", y - 8.0);
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"#444\"/>",
        y + HEIGHT,
        x + WIDTH
    );
    let mut groups: Vec<u32> = measurements.iter().map(|measurement| measurement.case.connections).collect();
    groups.dedup();
    let group_width = WIDTH / groups.len().max(1) as f64;
    for (group, connections) in groups.iter().enumerate() {
        let left = x + group as f64 * group_width;
        let middle = left + group_width / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{connections} connections</text>",
            y + HEIGHT + 16.0
        );
        let bars: Vec<_> =
            measurements.iter().filter(|measurement| measurement.case.connections == *connections).collect();
        let bar_width = group_width * 0.85 / bars.len().max(1) as f64;
        for (bar, measurement) in bars.iter().enumerate() {
            let Some(value) = number(measurement) else { continue };
            let height = if highest > 0.0 { value / highest * (HEIGHT - 20.0) } else { 0.0 };
            let (bar_x, bar_y) = (left + bar as f64 * bar_width, y + HEIGHT - height);
            let colour =
                COLOURS.iter().find(|(name, _)| *name == measurement.contender).map_or("#000", |(_, it)| it);
            let _ = writeln!(
                svg,
                "<rect x=\"{bar_x:.1}\" y=\"{bar_y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" text-anchor=\"middle\">{value:.0}</text>",
                bar_width - 2.0,
                bar_x + bar_width / 2.0,
                bar_y - 3.0
            );
        }
    }
}
