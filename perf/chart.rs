//! The report as a page: one file without scripts, with charts in SVG.
//!
//! Owns how figures are drawn. Takes the same object that is written as JSON, and decides nothing.

use serde_json::Value;

use super::comparison::{each, text};

/// Quantiles of a latency curve, and what they are called.
pub const QUANTILES: &[(f64, &str)] = &[
    (0.0, "min"),
    (0.25, "p25"),
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (1.0, "max"),
];

/// The page.
#[must_use]
pub fn page(report: &Value) -> String {
    let mut body = format!("<h1>Ringlog beside Apache Kafka</h1><p>{}</p>", text(&report["title"]));
    body += "<h2>The machine in the same minute</h2><table>";
    for (name, value) in report["floors"].as_object().into_iter().flatten() {
        body += &format!("<tr><th>{name}</th><td>{value}</td></tr>");
    }
    body += "</table><h2>What an acknowledgement means</h2><table>";
    for (name, durability) in report["brokers"].as_object().into_iter().flatten() {
        body += &format!("<tr><th>{name}</th><td>{}</td></tr>", text(durability));
    }
    body += &format!("</table><h2>Goals</h2>{}", goals(each(&report["goals"])));
    for left_out in each(&report["left_out"]) {
        let (name, why) = (text(&left_out["name"]), text(&left_out["why"]));
        body += &format!("<p>Left out: {name}: {why}</p>");
    }
    for scenario in each(&report["scenarios"]) {
        body += &format!("<h2>{}</h2>", text(&scenario["title"]));
        let brokers = each(&scenario["brokers"]);
        body += &curves(brokers);
        body += &stages(brokers);
        body += &over_time(brokers, "requests_by_second", "requests per second, last round");
        body += &over_time(brokers, "resident_mib_by_second", "MiB resident, last round");
        let columns = each(&scenario["columns"]);
        body += &table(columns, brokers, ("name", ""));
        body += &table(columns, each(&scenario["ratios"]), ("of", "to"));
    }
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Ringlog beside Apache Kafka</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>\n"
    )
}

/// The latencies of one scenario by themselves, as a file.
#[must_use]
pub fn image(report: &Value, scenario: &str) -> Option<String> {
    let scenario = each(&report["scenarios"]).iter().find(|one| text(&one["name"]) == scenario)?;
    let curves = curves(each(&scenario["brokers"]));
    let (_, rest) = curves.split_once('>')?;
    let (height, title) = (HEIGHT + 90.0, text(&scenario["title"]));
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 -30 {} {height}\" \
         font-family=\"sans-serif\"><title>{title}</title><style>{SVG_STYLE}</style>\
         <rect x=\"-8\" y=\"-30\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"0\" y=\"-10\">{title}</text>{rest}\n",
        WIDTH + 16.0
    ))
}

/// What is wanted, what was measured, and whether that is enough.
fn goals(goals: &[Value]) -> String {
    let mut out = "<table><tr><th>goal</th><th>between</th><th>bound</th><th>measured</th>\
                   <th>met</th></tr>"
        .to_owned();
    for goal in goals {
        let [what, between, bound] = ["goal", "between", "bound"].map(|key| text(&goal[key]));
        let measured = &goal["measured"];
        let met = match goal["met"].as_bool() {
            Some(true) => "yes",
            Some(false) => goal["limit"].as_str().unwrap_or("no"),
            None => "not measured",
        };
        out += &format!(
            "<tr><th>{what}</th><td>{between}</td><td>{}</td><td>{} <i>{}..{}</i></td>\
             <td>{met}</td></tr>",
            bound.replace('<', "&lt;").replace('>', "&gt;"),
            measured[0],
            measured[1],
            measured[2]
        );
    }
    out + "</table>"
}

/// Figures of brokers or ratios: median, and lowest and highest beside it.
fn table(columns: &[Value], rows: &[Value], (head, to): (&str, &str)) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "<table><tr><th></th>".to_owned();
    for name in columns {
        out += &format!("<th>{}</th>", text(name));
    }
    out += "</tr>";
    for row in rows {
        let head = match row[to].as_str() {
            Some(to) => format!("{} / {to}", text(&row[head])),
            None => text(&row[head]).to_owned(),
        };
        let failed = row["failed"].as_str().map(|why| format!(" <i>failed: {why}</i>"));
        out += &format!("<tr><th>{head}{}</th>", failed.unwrap_or_default());
        for name in columns {
            let figure = &row["figures"][text(name)];
            out += &format!("<td>{} <i>{}..{}</i></td>", figure[0], figure[1], figure[2]);
        }
        out += "</tr>";
    }
    out + "</table>"
}

/// Latency over quantiles, one line per broker, on a logarithmic scale.
fn curves(brokers: &[Value]) -> String {
    let points = |broker: &Value| -> Vec<f64> {
        each(&broker["curve_us"]).iter().filter_map(Value::as_f64).map(|us| us.max(1.0)).collect()
    };
    let all: Vec<f64> = brokers.iter().flat_map(points).collect();
    if all.is_empty() {
        return String::new();
    }
    let highest = all.iter().copied().fold(10.0, f64::max).log10().ceil();
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min).log10().floor().max(0.0);
    let x = |place: usize| LEFT + place as f64 * (WIDTH - LEFT) / QUANTILES.len() as f64;
    let y = |us: f64| TOP + (highest - us.log10()) / (highest - lowest).max(1.0) * (HEIGHT - TOP);
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", HEIGHT + 60.0);
    let mut power = lowest;
    while power <= highest {
        let (us, at) = (10f64.powf(power), y(10f64.powf(power)));
        out += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{us} us</text>",
            LEFT - 6.0,
            at + 4.0
        );
        power += 1.0;
    }
    for (place, (_, name)) in QUANTILES.iter().enumerate() {
        let (at, below) = (x(place), HEIGHT + 18.0);
        out += &format!("<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>");
    }
    for (number, broker) in brokers.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line: Vec<String> = points(broker)
            .iter()
            .enumerate()
            .map(|(place, &us)| format!("{:.1},{:.1}", x(place), y(us)))
            .collect();
        let (line, at) = (line.join(" "), LEFT + number as f64 * 220.0);
        let (name, below) = (text(&broker["name"]), HEIGHT + 44.0);
        out += &format!(
            "<polyline points=\"{line}\" stroke=\"{colour}\"/>\
             <text x=\"{at}\" y=\"{below}\" fill=\"{colour}\">{name}</text>"
        );
    }
    out + "</svg>"
}

/// Where the time of a request went, one bar per broker that tells it.
fn stages(brokers: &[Value]) -> String {
    let of = |broker: &Value| -> Vec<(String, f64)> {
        let stages = broker["stages_us"].as_object().into_iter().flatten();
        stages.filter_map(|(stage, us)| Some((stage.clone(), us.as_f64()?))).collect()
    };
    let bars: Vec<(&str, Vec<(String, f64)>)> = brokers
        .iter()
        .map(|broker| (text(&broker["name"]), of(broker)))
        .filter(|(_, stages)| !stages.is_empty())
        .collect();
    let sum = |stages: &[(String, f64)]| stages.iter().map(|(_, us)| us).sum::<f64>();
    let longest = bars.iter().map(|(_, stages)| sum(stages)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let height = bars.len() as f64 * BAR;
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (number, (name, stages)) in bars.iter().enumerate() {
        let (top, mut left) = (number as f64 * BAR, 0.0);
        let told: Vec<String> =
            stages.iter().map(|(stage, us)| format!("{stage} {us:.0}")).collect();
        out += &format!(
            "<text x=\"0\" y=\"{:.0}\">{name}, mean microseconds: {}</text>",
            top + 12.0,
            told.join(", ")
        );
        for (place, (stage, us)) in stages.iter().enumerate() {
            let wide = us / longest * WIDTH;
            let colour = STAGE_COLOURS[place % STAGE_COLOURS.len()];
            out += &format!(
                "<rect x=\"{left:.1}\" y=\"{:.0}\" width=\"{wide:.1}\" height=\"16\" \
                 fill=\"{colour}\"><title>{stage} {us:.1} us</title></rect>",
                top + 18.0
            );
            left += wide;
        }
    }
    out + "</svg>"
}

/// A figure second by second, one line per broker.
fn over_time(brokers: &[Value], key: &str, title: &str) -> String {
    let of = |broker: &Value| -> Vec<f64> {
        each(&broker[key]).iter().filter_map(Value::as_f64).collect()
    };
    let highest = brokers.iter().flat_map(of).fold(0.0, f64::max);
    let longest = brokers.iter().map(|broker| of(broker).len()).max().unwrap_or(0);
    if longest < 2 || highest <= 0.0 {
        return String::new();
    }
    let (height, below) = (HEIGHT / 2.0, HEIGHT / 2.0 + 18.0);
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">", below + 8.0);
    out += &format!(
        "<text x=\"0\" y=\"14\">{highest}</text><text x=\"0\" y=\"{below}\">0, {title}, over \
         {longest} s</text>"
    );
    for (number, broker) in brokers.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let x = |place: usize| LEFT + place as f64 * (WIDTH - LEFT) / (longest - 1) as f64;
        let y = |figure: f64| TOP + (1.0 - figure / highest) * (height - TOP);
        let line: Vec<String> = of(broker)
            .iter()
            .enumerate()
            .map(|(place, &figure)| format!("{:.1},{:.1}", x(place), y(figure)))
            .collect();
        out += &format!("<polyline points=\"{}\" stroke=\"{colour}\"/>", line.join(" "));
    }
    out + "</svg>"
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 12.0;
/// Height of a bar with its text.
const BAR: f64 = 42.0;
const STAGE_COLOURS: &[&str] = &[
    "#0b62a4", "#3aa6dd", "#8e44ad", "#c0392b", "#e8963a", "#27ae60", "#7f8c8d", "#16a085",
    "#2c3e50",
];
const COLOURS: &[&str] = &["#0b62a4", "#3aa6dd", "#c0392b", "#e8963a"];
const STYLE: &str = "body{font:14px sans-serif;max-width:70em;margin:2em auto}\
    table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #ccc;padding:.2em .5em}\
    th{text-align:left}td{text-align:right}i{color:#777;font-size:85%}\
    svg text{font:12px sans-serif}polyline{fill:none;stroke-width:2}.grid{stroke:#ddd}";
const SVG_STYLE: &str =
    "text{font:12px sans-serif}polyline{fill:none;stroke-width:2}.grid{stroke:#ddd}";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_broker_has_a_line_and_a_row() {
        let broker = |name: &str, us: f64| {
            let curve: Vec<f64> = QUANTILES.iter().map(|_| us).collect();
            json!({
                "name": name,
                "figures": { "p50_us": [us, us, us] },
                "curve_us": curve,
                "stages_us": { "device": us / 2.0, "send": us / 2.0 },
                "requests_by_second": [us, us, us],
                "resident_mib_by_second": [1.0],
            })
        };
        let report = json!({
            "title": "t",
            "floors": { "floor_us": 5 },
            "scenarios": [{
                "title": "s",
                "columns": ["p50_us"],
                "brokers": [broker("a", 100.0), broker("b", 1000.0)],
                "ratios": [{ "of": "a", "to": "b", "figures": { "p50_us": [0.1, 0.1, 0.1] } }],
            }],
        });
        let page = page(&report);
        // A curve and a line over time for each; one second is no line.
        assert_eq!(page.matches("<polyline").count(), 4);
        assert_eq!(page.matches("<rect").count(), 4);
        assert!(page.contains("<title>device 500.0 us</title>"), "{page}");
        assert!(page.contains("<tr><th>a</th><td>100.0 <i>100.0..100.0</i></td></tr>"), "{page}");
        assert!(page.contains("<tr><th>a / b</th><td>0.1 <i>0.1..0.1</i></td></tr>"), "{page}");
        assert!(page.contains("<tr><th>floor_us</th><td>5</td></tr>"), "{page}");
        // The line of the slower one is higher: towards the top, where y is small.
        let y = |part: &str| -> f64 {
            let first = part.split(['"', ' ']).next().expect("a point");
            first.split_once(',').expect("x,y").1.parse().expect("a number")
        };
        let lines: Vec<f64> = page.split("<polyline points=\"").skip(1).map(y).collect();
        assert!(lines[1] < lines[0], "{lines:?}");
    }
}
