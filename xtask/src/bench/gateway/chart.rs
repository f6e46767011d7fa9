//! The figures as a drawing: for each size of results, processor time per call and calls per second.

use std::fmt::Write;

use super::Figure;

/// The size of one panel, and the room around it.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const GAP: f64 = 60.0;

const COLOURS: [(&str, &str); 8] = [
    ("direct", "#9aa5b1"),
    ("nginx", "#3d8b5f"),
    ("plain", "#8cc2a3"),
    ("toolgate", "#2f5fd0"),
    ("short log", "#8fb0f5"),
    ("fastmcp", "#d08a2f"),
    ("agentgw", "#b0457b"),
    ("rmcp", "#6b4fa0"),
];

/// What is drawn in one column of panels: a title, and the number of a figure.
type Measure = (&'static str, fn(&Figure) -> Option<f64>);

const MEASURES: [Measure; 2] = [
    ("processor time per call, µs (less is better)", |figure| figure.cpu_us_per_call),
    ("calls per second (more is better)", |figure| Some(figure.calls_per_second)),
];

pub(super) fn svg(figures: &[Figure]) -> String {
    let mut tools: Vec<&str> = figures.iter().map(|figure| figure.cell.name).collect();
    tools.dedup();
    let (width, height) = (LEFT + 2.0 * (WIDTH + GAP), TOP + tools.len() as f64 * (HEIGHT + GAP));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut x = LEFT;
    for (name, colour) in COLOURS.iter().filter(|(name, _)| figures.iter().any(|it| it.contender == *name)) {
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"22\">{name}</text>", x + 17.0);
        x += 110.0;
    }
    for (row, tool) in tools.iter().enumerate() {
        for (column, measure) in MEASURES.iter().enumerate() {
            let corner = (LEFT + column as f64 * (WIDTH + GAP), TOP + row as f64 * (HEIGHT + GAP));
            let figures: Vec<_> = figures.iter().filter(|figure| figure.cell.name == *tool).collect();
            panel(&mut svg, corner, tool, measure, &figures);
        }
    }
    svg + "</svg>\n"
}

/// One panel: a group of bars for each number of connections, the highest as high as the panel.
fn panel(svg: &mut String, (x, y): (f64, f64), tool: &str, (title, number): &Measure, figures: &[&Figure]) {
    let highest = figures.iter().filter_map(|figure| number(figure)).fold(0.0, f64::max);
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{tool}: {title}</text>", y - 8.0);
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"#444\"/>",
        y + HEIGHT,
        x + WIDTH
    );
    let mut groups: Vec<u32> = figures.iter().map(|figure| figure.cell.connections).collect();
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
        let bars: Vec<_> = figures.iter().filter(|figure| figure.cell.connections == *connections).collect();
        let bar_width = group_width * 0.85 / bars.len().max(1) as f64;
        for (bar, figure) in bars.iter().enumerate() {
            let Some(value) = number(figure) else { continue };
            let height = if highest > 0.0 { value / highest * (HEIGHT - 20.0) } else { 0.0 };
            let (bar_x, bar_y) = (left + bar as f64 * bar_width, y + HEIGHT - height);
            let colour =
                COLOURS.iter().find(|(name, _)| *name == figure.contender).map_or("#000", |(_, it)| it);
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
