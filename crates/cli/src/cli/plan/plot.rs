// SPDX-License-Identifier: Apache-2.0
//! Load against delay, as SVG.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tautline_gateway::plain::plain;
use tautline_plan::{Axis, Sweep, TopicDelays};

const SIZE: (u32, u32) = (960, 540);
/// Pixels of the left part, which has the curves; the right part has the legend.
const CURVES_WIDTH: i32 = 690;
/// Pixels above the curves, for the title and the name of the limit.
const TOP: i32 = 68;
/// Pixels between two lines of the legend.
const LINE: i32 = 24;
const FONT: &str = "sans-serif";
/// Room above and below the delays, as a factor.
const RANGE_MARGIN: f64 = 1.5;
/// Maximum letters of a name in the legend: 14 pixels high, they fill the legend's width.
const MAX_NAME: usize = 28;
const MAX_BYTES: usize = 300;
/// Colours that people with colour blindness can distinguish (Okabe and Ito, 2008). Brown replaces yellow,
/// which is faint on white. Further topics are not drawn.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(140, 81, 10),
];
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Colour of loads that do not fit.
const OVERLOAD_COLOUR: RGBColor = GREY;
const SHADE: f64 = 0.12;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws worst-case and typical delays of each topic.
pub fn svg(title: &str, axis: &Axis, sweep: &Sweep) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, title, axis, sweep).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(text: &mut String, title: &str, axis: &Axis, sweep: &Sweep) -> DrawResult {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(CURVES_WIDTH);
    root.draw(&Text::new(title.to_owned(), (20, 12), (FONT, 17)))?;
    curves(&left, axis, sweep)?;
    legend(&right, sweep)?;
    root.present()
}

fn names(sweep: &Sweep) -> Vec<&str> {
    sweep.points.first().iter().flat_map(|it| &it.topics).map(|it| &*it.topic).collect()
}

fn curves(area: &Area<'_>, axis: &Axis, sweep: &Sweep) -> DrawResult {
    let (from, to) = (first_position(sweep), last_position(sweep));
    let mut chart = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_left(8)
        .margin_right(24)
        .margin_bottom(8)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(from..to, delay_range(sweep).log_scale())?;
    if let Some(limit) = sweep.limit.filter(|it| *it < to) {
        let (low, high) = (chart.y_range().start, chart.y_range().end);
        let beyond = [(limit.max(from), low), (to, high)];
        chart.draw_series([Rectangle::new(beyond, OVERLOAD_COLOUR.mix(SHADE).filled())])?;
    }
    let words = match axis {
        Axis::Load => "load: all rates, as a multiple of the expected ones".into(),
        Axis::Robots(name) => format!("robots like {name}"),
    };
    chart
        .configure_mesh()
        .light_line_style(GREY.mix(0.1))
        .bold_line_style(GREY.mix(0.3))
        .x_desc(words)
        .y_desc("delay of a message")
        .x_labels(ticks(axis, from, to))
        .x_label_formatter(&|at| position(axis, *at))
        .y_label_formatter(&|ms| format_delay(*ms))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    for (number, colour) in COLOURS.into_iter().enumerate() {
        let line = |of: fn(&TopicDelays) -> Option<f64>| -> Vec<(f64, f64)> {
            let delay = |it: &tautline_plan::Point| {
                let topic = it.topics.get(number)?;
                // Without a worst case, messages are lost, and a mean says little.
                topic.worst_ms.and(of(topic)).map(|ms| (it.at, ms))
            };
            sweep.points.iter().filter_map(delay).collect()
        };
        let dashed = colour.stroke_width(2);
        chart.draw_series(DashedLineSeries::new(line(|it| it.typical_ms), 6, 4, dashed))?;
        chart.draw_series(LineSeries::new(line(|it| it.worst_ms), colour.stroke_width(2)))?;
        let worst = line(|it| it.worst_ms);
        let end = worst.last().filter(|(at, _)| *at < to).copied();
        chart.draw_series(end.map(|it| Cross::new(it, 4, colour.stroke_width(2))))?;
    }
    draw_limit(area, &chart, axis, sweep)
}

/// Draws the load at which the radio is full, with its name above the curves.
fn draw_limit(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Curves>,
    axis: &Axis,
    sweep: &Sweep,
) -> DrawResult {
    let range = chart.y_range();
    let found = sweep.limit.filter(|it| *it < last_position(sweep));
    let words = match found {
        None => "fits at every load shown".into(),
        Some(limit) => match axis {
            Axis::Load => format!("fits up to {}", position(axis, limit)),
            Axis::Robots(_) if limit == 1.0 => "fits one robot".into(),
            Axis::Robots(_) => format!("fits up to {limit} robots"),
        },
    };
    let at = found.unwrap_or(last_position(sweep)).max(first_position(sweep));
    let [(x, bottom), (_, top)] = [range.start, range.end].map(|y| chart.backend_coord(&(at, y)));
    if found.is_some() {
        let dashes = (0..(bottom - top) / 10).map(|it| top + it * 10);
        for y in dashes {
            area.draw(&PathElement::new([(x, y), (x, y + 6)], BLACK.stroke_width(1)))?;
        }
    }
    // Words at either end stay within the area.
    let middle = (chart.plotting_area().get_x_axis_pixel_range().start
        + chart.plotting_area().get_x_axis_pixel_range().end)
        / 2;
    let side = if x > middle { HPos::Right } else { HPos::Left };
    let style = (FONT, 15).into_text_style(area).pos(Pos::new(side, VPos::Bottom));
    area.draw_text(&words, &style, (x, top - 6))
}

type Curves = Cartesian2d<RangedCoordf64, LogCoord<f64>>;

/// The symbol in front of an entry of the legend.
enum Sign {
    None,
    Solid(RGBColor),
    Dashed,
    Area,
}

fn legend(area: &Area<'_>, sweep: &Sweep) -> DrawResult {
    let names = names(sweep);
    let mut lines: Vec<(Sign, String)> = names
        .iter()
        .zip(COLOURS)
        .map(|(name, colour)| (Sign::Solid(colour), shortened_name(name)))
        .collect();
    if names.len() > COLOURS.len() {
        lines.push((Sign::None, format!("{} more are not drawn", names.len() - COLOURS.len())));
    }
    lines.extend([
        (Sign::None, String::new()),
        (Sign::Solid(GREY), "worst case".into()),
        (Sign::Dashed, "typical (mean)".into()),
        (Sign::None, "× no bound at higher loads".into()),
    ]);
    if sweep.limit.is_some() {
        lines.push((Sign::Area, "does not fit".into()));
    }
    let rows = (0..).map(|number| TOP + number * LINE);
    lines.iter().zip(rows).try_for_each(|((sign, text), y)| entry(area, sign, text, y))
}

fn entry(area: &Area<'_>, sign: &Sign, text: &str, y: i32) -> DrawResult {
    let stroke = |from: i32, to: i32, colour: RGBColor| {
        area.draw(&PathElement::new([(from, y), (to, y)], colour.stroke_width(2)))
    };
    match sign {
        Sign::None => {}
        Sign::Solid(colour) => stroke(4, 34, *colour)?,
        Sign::Dashed => [4, 14, 24].into_iter().try_for_each(|x| stroke(x, x + 6, GREY))?,
        Sign::Area => {
            area.draw(&Rectangle::new(
                [(4, y - 7), (34, y + 7)],
                OVERLOAD_COLOUR.mix(SHADE).filled(),
            ))?;
        }
    }
    let style = (FONT, 14).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw_text(text, &style, (if matches!(sign, Sign::None) { 4 } else { 42 }, y))
}

/// Cuts the beginning of a long name: the end says more.
fn shortened_name(name: &str) -> String {
    // Names of a peer's topics may contain any characters.
    let name = plain(name, MAX_BYTES);
    let letters = name.chars().count();
    match letters > MAX_NAME {
        false => name,
        true => {
            let end: String = name.chars().skip(letters - MAX_NAME + 1).collect();
            format!("…{end}")
        }
    }
}

fn first_position(sweep: &Sweep) -> f64 {
    sweep.points.first().map_or(0.0, |it| it.at)
}

fn last_position(sweep: &Sweep) -> f64 {
    sweep.points.last().map_or(1.0, |it| it.at).max(first_position(sweep) + 1e-3)
}

/// The range of delays, with room at both ends.
fn delay_range(sweep: &Sweep) -> std::ops::Range<f64> {
    let topics = sweep.points.iter().flat_map(|it| it.topics.iter().take(COLOURS.len()));
    let delays: Vec<f64> = topics.flat_map(|it| [it.typical_ms, it.worst_ms]).flatten().collect();
    let least = delays.iter().copied().fold(f64::INFINITY, f64::min);
    let most = delays.iter().copied().fold(0.0, f64::max);
    if least.is_finite() {
        least / RANGE_MARGIN..most.max(least * 2.0) * RANGE_MARGIN
    } else {
        1.0..1000.0
    }
}

/// The largest number of labels on the axis of loads; few robots have one label each.
fn ticks(axis: &Axis, from: f64, to: f64) -> usize {
    match axis {
        Axis::Load => 10,
        Axis::Robots(_) => ((to - from) as usize + 1).clamp(2, 10),
    }
}

fn position(axis: &Axis, at: f64) -> String {
    match axis {
        Axis::Load => {
            format!("{at:.2}").trim_end_matches('0').trim_end_matches('.').to_owned() + "×"
        }
        Axis::Robots(_) if at.fract() == 0.0 => format!("{at:.0}"),
        Axis::Robots(_) => String::new(),
    }
}

fn format_delay(ms: f64) -> String {
    match ms {
        it if it >= 1000.0 => format!("{} s", it / 1000.0),
        it if it < 1.0 => format!("{} µs", (it * 1000.0).round()),
        it => format!("{} ms", it.round()),
    }
}
