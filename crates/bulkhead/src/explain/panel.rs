//! One server as a matrix: if the row's process falls, the columns' assets fall.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: draws outside of the
//! size that it states.

use super::draw::{Anchor, FAINT, INK, SMALL, Style, WORDS, cut, frame, rect, text, upwards, wrap};
use super::model::{Asset, Blast, Loss, Model};
use super::table::percent;

/// The colour of what is lost altogether, of what is lost in part, and of what is not.
pub const LOST: &str = "#b3261e";
/// See [`LOST`].
pub const TOUCHED: &str = "#f2b880";
/// See [`LOST`].
pub const SAFE: &str = "#eceff2";

const TITLE: Style = Style { size: 16, colour: INK, weight: "600", anchor: Anchor::Start };
const GROUP: Style = Style { size: 11, colour: INK, weight: "600", anchor: Anchor::Middle };

/// The box with a process's name, in pixels; about as many characters fit into it as are named here.
const NAME: f64 = 150.0;
const NAME_CHARS: usize = 21;

/// The bar beside a row, and the words behind it.
const BAR: f64 = 90.0;
const NUMBERS: f64 = 120.0;

/// The heads of columns, the height of a line and of a row.
const HEADS: f64 = 104.0;
const HEAD_CHARS: usize = 17;
const LINE: f64 = 15.0;
const ROW: f64 = 24.0;

/// The space between two groups of columns.
const BETWEEN: f64 = 8.0;

/// A picture of one server.
#[derive(Debug)]
pub struct Panel {
    /// What to draw, with (0, 0) in the corner.
    pub body: String,
    /// How far it goes down.
    pub height: f64,
}

/// Where the columns are; the same for every server, as they have the same to lose.
#[derive(Debug)]
pub struct Columns {
    x: Vec<f64>,
    cell: f64,
    /// The name of each group, with where it begins and ends.
    groups: Vec<(String, f64, f64)>,
    end: f64,
}

impl Columns {
    /// Places the assets; `site` tells a site's name.
    pub fn of(assets: &[Asset], site: impl Fn(usize) -> String) -> Self {
        // Many columns are narrow ones, so that a picture of a large server can still be looked at.
        let cell = if assets.len() > 60 { 14.0 } else { 20.0 };
        let mut columns = Self { x: Vec::new(), cell, groups: Vec::new(), end: NAME + 10.0 };
        for (number, asset) in assets.iter().enumerate() {
            if number == 0 || assets[number - 1].site != asset.site {
                let begin = columns.end + if number == 0 { 0.0 } else { BETWEEN };
                columns.groups.push((asset.site.map_or("server".into(), &site), begin, begin));
                columns.end = begin;
            }
            columns.x.push(columns.end);
            columns.end += cell;
            if let Some(group) = columns.groups.last_mut() {
                group.2 = columns.end;
            }
        }
        columns
    }

    /// How wide a panel is.
    pub fn width(&self) -> f64 {
        self.end + 12.0 + BAR + 8.0 + NUMBERS
    }
}

/// Draws a server; the row `chosen` is framed.
pub fn draw(name: &str, assumed: &str, model: &Model, columns: &Columns, chosen: Option<usize>) -> Panel {
    let mut body = text(0.0, 16.0, TITLE, name);
    let mut y = 34.0;
    // A character of this size is about 5.6 pixels wide.
    for line in wrap(assumed, (columns.width() / 5.6) as usize) {
        body += &text(0.0, y, SMALL, &line);
        y += LINE;
    }
    body += &heads(&model.assets, columns, y + 2.0);
    y += 2.0 + LINE + HEADS;
    let below = (columns.end + 12.0, y - 6.0);
    body += &text(below.0, below.1, SMALL, "assets lost (and in part)");
    for number in 0..model.processes.len() {
        body += &row(model, number, columns, y);
        if chosen == Some(number) {
            body += &frame(-4.0, y - 1.0, columns.width() + 4.0, ROW, INK);
        }
        y += ROW;
    }
    Panel { body, height: y }
}

fn heads(assets: &[Asset], columns: &Columns, y: f64) -> String {
    let mut body = String::new();
    for (name, begin, end) in &columns.groups {
        // A bold character of this size is about 6.6 pixels wide.
        let chars = ((end - begin) / 6.6) as usize;
        body += &text(f64::midpoint(*begin, *end), y + 10.0, GROUP, &cut(name, chars));
        body += &rect(*begin, y + LINE, end - begin - 2.0, 1.5, FAINT, "");
    }
    for (asset, x) in assets.iter().zip(&columns.x) {
        let style = Style { colour: INK, ..SMALL };
        let base = x + columns.cell / 2.0 + 3.0;
        body += &upwards(base, y + LINE + HEADS - 6.0, style, &cut(&asset.label, HEAD_CHARS));
    }
    body
}

fn row(model: &Model, number: usize, columns: &Columns, y: f64) -> String {
    let process = &model.processes[number];
    let losses = model.losses(number);
    let blast = model.blast_of(&losses);
    let mut lost = losses.iter().peekable();
    let (fill, colour) = shade(blast);
    let tall = ROW - 4.0;
    let mut body = rect(0.0, y + 1.0, NAME, tall, fill, &process.name);
    body += &text(8.0, y + 15.0, Style { colour, ..WORDS }, &cut(&process.name, NAME_CHARS));
    for ((number, asset), x) in model.assets.iter().enumerate().zip(&columns.x) {
        let (fill, hint) = match lost.next_if(|reach| reach.asset == number) {
            None => (SAFE, String::new()),
            Some(reach) => {
                let fill = if reach.loss == Loss::Whole { LOST } else { TOUCHED };
                let lost = reach.loss.name();
                let what = format!("{} {}", asset.kind.name(), asset.name);
                (fill, format!("{}: {lost} of {what}: {}", process.name, reach.how))
            }
        };
        body += &rect(*x, y + 1.0, columns.cell - 2.0, tall, fill, &hint);
    }
    body + &bar(blast, columns.end + 12.0, y)
}

fn bar(blast: Blast, x: f64, y: f64) -> String {
    let mut body = rect(x, y + 6.0, BAR, 10.0, SAFE, "");
    if blast.touched() > 0.0 {
        body += &rect(x, y + 6.0, BAR * blast.touched(), 10.0, TOUCHED, "");
    }
    if blast.lost() > 0.0 {
        body += &rect(x, y + 6.0, BAR * blast.lost(), 10.0, LOST, "");
    }
    let part = if blast.part == 0 { String::new() } else { format!(" (+{})", blast.part) };
    let words = format!("{} of {}{part}, {}", blast.whole, blast.total, percent(blast.lost()));
    body + &text(x + BAR + 8.0, y + 15.0, SMALL, &words)
}

/// The colours of a process's box and of its name: the more falls with it, the darker.
fn shade(blast: Blast) -> (&'static str, &'static str) {
    let step = (blast.lost() * 5.0).ceil() as usize;
    let fills = ["#f7f4f1", "#f6dcd3", "#eebcae", "#df8d7e", "#c9584c", LOST];
    let fill = fills[step.min(fills.len() - 1)];
    (fill, if step >= 4 { "#ffffff" } else { INK })
}

#[cfg(test)]
mod tests {
    use super::super::tests::demo;
    use super::*;

    #[test]
    fn columns_are_grouped_by_site() {
        let report = demo(None);
        let columns = Columns::of(&report.ours.assets, |site| report.config.sites[site].name.clone());
        let names: Vec<&str> = columns.groups.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["packages", "other", "server"]);
        assert_eq!(columns.x.len(), 19);
        assert!((columns.x[11] - columns.x[10] - 28.0).abs() < 1e-9);
        assert!(columns.x.windows(2).all(|pair| pair[1] - pair[0] >= columns.cell));
    }

    #[test]
    fn every_loss_is_drawn() {
        let report = demo(None);
        let columns = Columns::of(&report.ours.assets, |_| "site".into());
        let panel = draw("Ours", "As it is.", &report.ours, &columns, Some(2));
        let hints = panel.body.matches("<title>").count();
        let losses: usize = (0..report.posts.len()).map(|number| report.ours.losses(number).len()).sum();
        assert_eq!(hints, losses + report.posts.len());
        assert_eq!(panel.body.matches("stroke-width").count(), 1);
        assert!(panel.height > 9.0 * ROW);
    }

    #[test]
    fn the_more_falls_the_darker() {
        let blast = |whole| Blast { whole, part: 0, total: 10 };
        assert_eq!(shade(blast(0)).0, "#f7f4f1");
        assert_eq!(shade(blast(10)), (LOST, "#ffffff"));
        assert_ne!(shade(blast(1)).0, shade(blast(3)).0);
        assert!(!bar(blast(0), 0.0, 0.0).contains(LOST));
    }
}
