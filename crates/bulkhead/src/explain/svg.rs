//! The whole picture: our server at the left, others with the same sites and services at the right.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: refers to fonts,
//! scripts or pictures elsewhere.

use crate::fault::Fault;

use super::Explanation;
use super::draw::{Anchor, INK, SMALL, Style, WORDS, cut, rect, text};
use super::panel::{Columns, LOST, Panel, SAFE, TOUCHED, draw};
use super::table::percent;

const HEADLINE: Style = Style { size: 20, colour: INK, weight: "600", anchor: Anchor::Start };
const MARGIN: f64 = 28.0;
const BETWEEN: f64 = 56.0;
const BELOW: f64 = 34.0;

/// The most cells of a picture: processes of all servers, times assets.
///
/// LIMIT: a cell takes up to 250 bytes, so that a picture stays below 50 MB; about 150 sites with a service each.
const CELLS_MAX: usize = 200_000;

/// The longest name of a process behind a bar, in characters.
const WORST_CHARS: usize = 24;

/// The picture; the row of the process `chosen` is framed.
pub fn report(report: &Explanation, chosen: Option<usize>) -> Result<String, Fault> {
    let rows: usize = report.servers().iter().map(|(_, _, model)| model.processes.len()).sum();
    let assets = report.ours.assets.len();
    if rows * assets > CELLS_MAX {
        return Err(Fault::Failed(format!(
            "a picture of {rows} processes and {assets} assets would have {} cells, and has at most \
            {CELLS_MAX}; --json has them all",
            rows * assets
        )));
    }
    Ok(picture(report, chosen))
}

fn picture(report: &Explanation, chosen: Option<usize>) -> String {
    let site =
        |number: usize| report.config.sites.get(number).map_or(String::new(), |site| site.name.clone());
    let columns = Columns::of(&report.ours.assets, site);
    let servers = report.servers();
    let panels: Vec<Panel> = (servers.iter().enumerate())
        .map(|(number, (name, assumed, model))| {
            draw(name, assumed, model, &columns, chosen.filter(|_| number == 0))
        })
        .collect();
    let width = 2.0 * MARGIN + 2.0 * columns.width() + BETWEEN;
    let mut body = head(report, width);
    let top = 118.0;
    let (mut left, mut right) = (top, top);
    for (number, panel) in panels.iter().enumerate() {
        let (x, y) = match number {
            0 => (MARGIN, &mut left),
            _ => (MARGIN + columns.width() + BETWEEN, &mut right),
        };
        body += &format!("<g transform=\"translate({x:.1} {y:.1})\">\n{}</g>\n", panel.body);
        *y += panel.height + BELOW;
    }
    body += &means(report, left + 10.0);
    left += 10.0 + 40.0 + 22.0 * servers.len() as f64;
    let height = left.max(right) + MARGIN / 2.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
        viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\">\n\
        <title>What falls with a process</title>\n{}{body}</svg>",
        rect(0.0, 0.0, width, height, "#ffffff", "")
    )
}

fn head(report: &Explanation, width: f64) -> String {
    let source = match &report.server {
        Ok(_) => format!("{}, and the server that runs", report.file),
        Err(_) => format!("{}; no server was asked", report.file),
    };
    // A character of this size is about 5.6 pixels wide.
    let chars = ((width - 2.0 * MARGIN) / 5.6) as usize;
    let mut body = text(MARGIN, 42.0, HEADLINE, "If the process of a row falls, what falls with it?");
    body += &text(MARGIN, 62.0, SMALL, &cut(&source, chars));
    let keys = [(LOST, "lost altogether"), (TOUCHED, "lost in part"), (SAFE, "not lost")];
    let mut x = MARGIN;
    for (fill, words) in keys {
        body += &rect(x, 76.0, 14.0, 14.0, fill, "");
        body += &text(x + 20.0, 87.0, WORDS, words);
        x += 132.0;
    }
    let more = "Files: read. Users: what they send and are answered. Logs in part: false lines.";
    body + &text(x, 87.0, SMALL, more)
}

/// What one process costs on average, a line for each server.
fn means(report: &Explanation, y: f64) -> String {
    let title = Style { weight: "600", ..WORDS };
    let mut body = text(MARGIN, y, title, "Lost with one kind of process that is not root, on average");
    for (number, (name, _, model)) in report.servers().iter().enumerate() {
        let summary = model.summary();
        let y = y + 14.0 + 22.0 * number as f64;
        body += &text(MARGIN, y + 12.0, WORDS, name);
        let (x, full) = (MARGIN + 120.0, 160.0);
        body += &rect(x, y + 2.0, full, 12.0, SAFE, "");
        body += &rect(x, y + 2.0, full * summary.touched, 12.0, TOUCHED, "");
        body += &rect(x, y + 2.0, full * summary.lost, 12.0, LOST, "");
        let (lost, touched) = (percent(summary.lost), percent(summary.touched));
        let worst = summary.worst.map_or(String::new(), |(process, blast)| {
            format!("; at worst {}, with {}", percent(blast.lost()), cut(&process.name, WORST_CHARS))
        });
        let words = format!("{lost} of all assets, {touched} with parts{worst}");
        body += &text(x + full + 10.0, y + 12.0, SMALL, &words);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::super::granted::GrantedCalls;
    use super::super::tests::demo;
    use super::super::{Explanation, assets::tests::parse};
    use super::*;

    /// Whether every element that begins also ends, in order.
    fn is_well_formed(svg: &str) -> bool {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            let name = tag.trim_start_matches('/').split_whitespace().next().unwrap();
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        open.is_empty()
    }

    #[test]
    fn four_servers_are_drawn() {
        let svg = report(&demo(None), None).unwrap();
        assert!(is_well_formed(&svg));
        for name in ["Bulkhead", "Apache prefork", "nginx + php-fpm", "one process", "packages/search"] {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}");
        }
        assert!(!svg.contains("stroke-width"));
        assert!(report(&demo(None), Some(3)).unwrap().contains("stroke-width"));
        assert_eq!(svg.matches("http").count() - svg.matches("httpd").count(), 1, "nothing from elsewhere");
    }

    #[test]
    fn a_picture_that_nobody_can_look_at_is_refused() {
        let mut text = String::from("[[listen]]\naddress = \"127.0.0.1:80\"\n");
        for number in 0..250 {
            text +=
                &format!("[[site]]\nname = \"s{number}\"\nhost = [\"h{number}\"]\nroot = \"s{number}\"\n");
        }
        let big = Explanation::new("f".into(), parse(&text), GrantedCalls::default(), Err("none".into()));
        let error = report(&big, None).unwrap_err().to_string();
        assert!(
            error.starts_with("a picture of 259 processes and 1004 assets would have 260036 cells"),
            "{error}"
        );
    }

    #[test]
    fn folders_with_markup_in_their_names_do_no_harm() {
        let config = parse(
            "[[listen]]\naddress = \"127.0.0.1:80\"\n\
            [[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"<script>&\"\n",
        );
        let svg = report(
            &Explanation::new("<x>.toml".into(), config, GrantedCalls::default(), Err("none".into())),
            None,
        )
        .unwrap();
        assert!(is_well_formed(&svg));
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;&amp;"));
        assert!(svg.contains("&lt;x&gt;.toml"));
    }
}
